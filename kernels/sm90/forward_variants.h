// The compiled variants of the forward kernel for Hopper.
#pragma once

#include <span>

#include "kernels/sm90/forward.cuh"
#include "kernels/sm90/variant.h"

namespace flashbench::kernels::sm90 {

template <Config kConfig>
constexpr Variant<Arguments> forward_variant() {
  using Half = Forward<__half, kConfig>;
  auto variant =
      variant_of<Half>(forward_kernel<Half>, forward_kernel<Forward<__nv_bfloat16, kConfig>>);
  variant.blocks.overlaps = kConfig.overlaps;
  return variant;
}

// Those that compute whole tiles of a problem.
std::span<const Variant<Arguments>> forward_variants(const Problem&);

// Those for requests of different lengths, and windows (Config::by_request).
std::span<const Variant<Arguments>> forward_variants_by_request();

// Those with O in fp32 (Config::fp32_o), one for each head_dim.
std::span<const Variant<Arguments>> forward_variants_fp32_o();

// Those for a share of the queries (Config::shared), one for each head_dim.
std::span<const Variant<Arguments>> forward_variants_share();

}  // namespace flashbench::kernels::sm90
