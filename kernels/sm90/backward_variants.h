// The compiled variants of the backward pass's main kernel for Hopper.
#pragma once

#include <array>
#include <span>

#include "kernels/sm90/backward.cuh"
#include "kernels/sm90/backward_by_gradient.cuh"
#include "kernels/sm90/backward_list_work.cuh"
#include "kernels/sm90/backward_pairs.cuh"
#include "kernels/sm90/variant.h"

namespace flashbench::kernels::sm90 {

// Of the kernel's two instances, for __half and __nv_bfloat16.
template <typename Half>
constexpr Variant<BackwardArguments> backward_variant_of(void (*fp16)(BackwardArguments),
                                                         void (*bf16)(BackwardArguments)) {
  auto variant = variant_of<Half>(fp16, bf16);
  variant.persistent = Half::kPersistent;
  if constexpr (Half::kByRequest) variant.lister = backward_list_work<typename Half::Work>;
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

template <int kHeadDim, int kBlockKv, bool kDeterministic, bool kByRequest>
constexpr Variant<BackwardArguments> backward_variant_by_gradient() {
  using Half = BackwardByGradient<__half, kHeadDim, kBlockKv, kDeterministic, kByRequest>;
  using Bf16 = BackwardByGradient<__nv_bfloat16, kHeadDim, kBlockKv, kDeterministic, kByRequest>;
  return backward_variant_of<Half>(backward_kernel<Half>, backward_kernel<Bf16>);
}

template <bool kDeterministic, bool kByRequest>
constexpr Variant<BackwardArguments> backward_variant_of_pairs() {
  using Half = BackwardPairs<__half, kDeterministic, kByRequest>;
  using Bf16 = BackwardPairs<__nv_bfloat16, kDeterministic, kByRequest>;
  auto variant =
      backward_variant_of<Half>(backward_kernel_of_pairs<Half>, backward_kernel_of_pairs<Bf16>);
  variant.blocks.kv = Half::kPairKv;
  variant.blocks.cluster = 2;
  return variant;
}

// One of each head_dim that any of them serves.
template <bool kDeterministic, bool kByRequest>
constexpr std::array<Variant<BackwardArguments>, 5> backward_variants() {
  return {backward_variant<backward_config(64, kDeterministic, kByRequest)>(),
          backward_variant<backward_config(96, kDeterministic, kByRequest)>(),
          backward_variant<backward_config(128, kDeterministic, kByRequest)>(),
          backward_variant_by_gradient<192, 80, kDeterministic, kByRequest>(),
          backward_variant_of_pairs<kDeterministic, kByRequest>()};
}

// Those for requests of different lengths.
std::span<const Variant<BackwardArguments>> backward_variants_by_request(bool deterministic);

}  // namespace flashbench::kernels::sm90
