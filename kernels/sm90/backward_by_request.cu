// The variants of the backward pass's main kernel for Hopper that serve requests of different
// lengths.
#include <array>

#include "kernels/sm90/backward_variants.h"

namespace flashbench::kernels::sm90 {
namespace {

template <bool kDeterministic>
constexpr std::array kVariantsByRequest = backward_variants<kDeterministic, true>();

}  // namespace

std::span<const Variant<BackwardArguments>> backward_variants_by_request(bool deterministic) {
  if (deterministic) return kVariantsByRequest<true>;
  return kVariantsByRequest<false>;
}

}  // namespace flashbench::kernels::sm90
