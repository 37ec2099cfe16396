// The precision in which a kernel multiplies bytes by its tensor cores, and sums the products.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace flashbench {

// Hopper's 8-bit products: in each step of kStepKeys keys, the products and the sum so far are
// aligned to the largest of them, and each keeps kFractionBits bits of fraction ("fp22";
// SageAttention2, arXiv 2411.10958; DeepSeek-V3, arXiv 2412.19437). The rest is cut off towards
// zero, so that it adds up in long sums. A kernel bounds that by moving its sum to fp32 registers
// every so many keys: it promotes.
struct Accumulator {
  static constexpr int64_t kStepKeys = 32;
  static constexpr int kFractionBits = 13;

  bool truncates = false;     // else fp32
  int64_t promote_every = 0;  // keys; 0: never
  int p_exponent = 8;         // the kernel rounds exp(S - maximum) times 2^p_exponent to e4m3

  std::string text() const {
    if (!truncates) return "fp32";
    return promote_every == 0 ? "fp22" : "promoted:" + std::to_string(promote_every);
  }
  auto operator<=>(const Accumulator&) const = default;
};

}  // namespace flashbench
