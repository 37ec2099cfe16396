// The compiled variants of the forward kernel for Hopper.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

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

// Of each configuration, changed by `kWith`.
template <std::array kConfigs, Config (*kWith)(Config)>
constexpr auto forward_variants_of() {
  return []<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array{forward_variant<kWith(kConfigs[kIndex])>()...};
  }
  (std::make_index_sequence<kConfigs.size()>());
}

// Dense problems: tiles of 128 queries or more, of which the last may be in pieces.
inline constexpr std::array kLargeTiles{
    configuration(64, 192, 128, 2),
    configuration(64, 192, 64, 4),
    configuration(80, 192, 64, 4),
    configuration(96, 192, 64, 4),
    configuration(128, 192, 64, 4),
    configuration(128, 192, 80, 3),
    configuration(192, 128, 64, 2),
    configuration(192, 128, 80, 2),
    configuration(256, 128, 64, 2),
    configuration(256, 128, 80, 2),
    // For problems of few blocks of queries.
    configuration(64, 128, 128, 2),
    configuration(80, 128, 128, 2),
    configuration(96, 128, 128, 2),
    configuration(128, 128, 128, 2),
    // For few blocks of queries and many keys.
    with_overlap(configuration(128, 128, 128, 2)),
};

// Those that compute whole tiles of a problem.
std::span<const Variant<Arguments>> forward_variants(const Problem&);

// The same whose last tiles are in pieces (Config::has_pieces).
std::span<const Variant<Arguments>> forward_variants_in_pieces();

// Those for requests of different lengths, and windows (Config::by_request).
std::span<const Variant<Arguments>> forward_variants_by_request();

// Those with O in fp32 (Config::fp32_o), one for each head_dim.
std::span<const Variant<Arguments>> forward_variants_fp32_o();

// Those for a share of the queries (Config::shared), one for each head_dim.
std::span<const Variant<Arguments>> forward_variants_share();

}  // namespace flashbench::kernels::sm90
