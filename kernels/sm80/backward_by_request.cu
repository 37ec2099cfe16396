// sm80's main kernel of the backward pass (backward_main.cuh) by request: lengths of its own for
// each, and windows.
#include <array>

#include "kernels/sm80/backward.h"
#include "kernels/sm80/backward_main.cuh"

namespace flashbench::kernels::sm80 {
namespace {

// One for each head_dim and shared memory, see backward_main.cu.
template <bool kDeterministic>
constexpr std::array kVariants{
    main_variant<Blocks<32, 32, 128, 4, 3, 1, 2, 2>, kDeterministic, true>(),
    main_variant<Blocks<64, 32, 128, 4, 2, 1, 2, 2>, kDeterministic, true>(),
    main_variant<Blocks<96, 64, 64, 4, 2, 2, 2, 2>, kDeterministic, true>(),
    main_variant<Blocks<128, 64, 128, 8, 2, 2, 2, 1>, kDeterministic, true>(),
    main_variant<Blocks<128, 32, 64, 4, 3, 2, 2, 2>, kDeterministic, true>(),
    main_variant<Blocks<192, 64, 64, 8, 2, 4, 2, 1>, kDeterministic, true>(),
    main_variant<Blocks<256, 32, 64, 8, 2, 2, 2, 1>, kDeterministic, true>(),
};

}  // namespace

std::span<const Variant<backward::Arguments>> main_variants_by_request(bool deterministic) {
  if (deterministic) return kVariants<true>;
  return kVariants<false>;
}

}  // namespace flashbench::kernels::sm80
