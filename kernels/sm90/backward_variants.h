// The compiled variants of the backward pass's main kernel for Hopper.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "kernels/backward/list_work.cuh"
#include "kernels/sm90/backward.cuh"
#include "kernels/sm90/backward_by_gradient.cuh"
#include "kernels/sm90/backward_pairs.cuh"
#include "kernels/sm90/variant.h"

namespace flashbench::kernels::sm90 {

// Of the kernel's two instances, for __half and __nv_bfloat16.
template <typename Half>
constexpr Variant<BackwardArguments> backward_variant_of(void (*fp16)(BackwardArguments),
                                                         void (*bf16)(BackwardArguments)) {
  auto variant = variant_of<Half>(fp16, bf16);
  variant.persistent = Half::kPersistent;
  if constexpr (Half::kByRequest) {
    variant.lister = backward::backward_list_work<typename Half::Work, BackwardArguments>;
  }
  return variant;
}

template <BackwardConfig kConfig>
constexpr Variant<BackwardArguments> backward_variant() {
  using Half = Backward<__half, kConfig>;
  auto variant = backward_variant_of<Half>(backward_kernel<Half>,
                                           backward_kernel<Backward<__nv_bfloat16, kConfig>>);
  variant.transposes_dq = Half::kDqTransposed;
  return variant;
}

template <int kHeadDim, int kBlockKv, bool kDeterministic, bool kByRequest, bool kInPieces>
constexpr Variant<BackwardArguments> backward_variant_by_gradient() {
  using Half =
      BackwardByGradient<__half, kHeadDim, kBlockKv, kDeterministic, kByRequest, kInPieces>;
  using Bf16 =
      BackwardByGradient<__nv_bfloat16, kHeadDim, kBlockKv, kDeterministic, kByRequest, kInPieces>;
  return backward_variant_of<Half>(backward_kernel<Half>, backward_kernel<Bf16>);
}

template <bool kDeterministic, bool kByRequest, bool kInPieces>
constexpr Variant<BackwardArguments> backward_variant_of_pairs() {
  using Half = BackwardPairs<__half, kDeterministic, kByRequest, kInPieces>;
  using Bf16 = BackwardPairs<__nv_bfloat16, kDeterministic, kByRequest, kInPieces>;
  auto variant =
      backward_variant_of<Half>(backward_kernel_of_pairs<Half>, backward_kernel_of_pairs<Bf16>);
  variant.blocks.kv = Half::kPairKv;
  variant.blocks.cluster = 2;
  return variant;
}

// One of each head_dim that any of them serves.
template <bool kDeterministic, bool kByRequest, bool kInPieces = false>
constexpr std::array<Variant<BackwardArguments>, 5> backward_variants() {
  return {backward_variant<backward_config(64, kDeterministic, kByRequest, kInPieces)>(),
          backward_variant<backward_config(96, kDeterministic, kByRequest, kInPieces)>(),
          backward_variant<backward_config(128, kDeterministic, kByRequest, kInPieces)>(),
          backward_variant_by_gradient<192, 80, kDeterministic, kByRequest, kInPieces>(),
          backward_variant_of_pairs<kDeterministic, kByRequest, kInPieces>()};
}

// Vision transformers have heads of 72 and 80, for which there is one more.
template <bool kInPieces>
constexpr auto backward_variants_with_80() {
  constexpr auto all = backward_variants<false, false, kInPieces>();
  std::array<Variant<BackwardArguments>, all.size() + 1> with_80{
      backward_variant<backward_config(80, false, false, kInPieces)>()};
  std::ranges::copy(all, with_80.begin() + 1);
  return with_80;
}

// Those for dense problems whose last blocks of keys are in pieces. The others leave the code for
// pieces out, which costs short launches 1 to 2%.
std::span<const Variant<BackwardArguments>> backward_variants_in_pieces();

// Those for requests of different lengths.
std::span<const Variant<BackwardArguments>> backward_variants_by_request(bool deterministic);

}  // namespace flashbench::kernels::sm90
