// sm80's main kernel of the backward pass (backward_main.cuh) for batches of equal lengths.
#include <array>

#include "kernels/sm80/backward.h"
#include "kernels/sm80/backward_main.cuh"

namespace flashbench::kernels::sm80 {
namespace {

// For a head_dim, the default (where the table of block sizes has no entry) is the first variant
// that fits the device's shared memory: 227 KB (sm_90), 163 KB (sm_80) or 99 KB.
template <bool kDeterministic>
constexpr std::array kVariants{
    main_variant<Blocks<32, 32, 128, 4, 3, 1, 2, 2>, kDeterministic>(),
    main_variant<Blocks<64, 32, 128, 4, 2, 1, 2, 2>, kDeterministic>(),
    main_variant<Blocks<96, 64, 128, 8, 2, 2, 4, 1>, kDeterministic>(),
    main_variant<Blocks<96, 64, 64, 4, 2, 2, 2, 2>, kDeterministic>(),
    main_variant<Blocks<128, 64, 128, 8, 3, 2, 2, 1>, kDeterministic>(),
    main_variant<Blocks<128, 64, 128, 8, 2, 2, 2, 1>, kDeterministic>(),
    main_variant<Blocks<128, 32, 64, 4, 3, 2, 2, 2>, kDeterministic>(),
    main_variant<Blocks<192, 64, 64, 8, 3, 4, 2, 1>, kDeterministic>(),
    main_variant<Blocks<192, 64, 64, 8, 2, 4, 2, 1>, kDeterministic>(),
    main_variant<Blocks<256, 64, 64, 8, 2, 4, 2, 1>, kDeterministic>(),
    main_variant<Blocks<256, 32, 64, 8, 2, 2, 2, 1>, kDeterministic>(),
};

}  // namespace

std::span<const Variant<backward::Arguments>> main_variants(bool deterministic) {
  if (deterministic) return kVariants<true>;
  return kVariants<false>;
}

}  // namespace flashbench::kernels::sm80
