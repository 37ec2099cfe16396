// The host's description of a Hopper kernel that is compiled for one configuration.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <string_view>

#include "kernels/attention.h"
#include "kernels/common/half_types.h"
#include "kernels/common/launch.h"

namespace flashbench::kernels::sm90 {

// For both dtypes; see kernels/common/blocks.h.
template <typename Arguments>
struct Variant {
  int head_dim;
  BlockSizes blocks;
  int threads, shared_bytes;
  void (*fp16)(Arguments);
  void (*bf16)(Arguments);

  CudaKernel<Arguments> kernel(std::string_view name, Dtype dtype) const {
    return {name, for_half(dtype, fp16, bf16), threads, shared_bytes};
  }
};

// Makes a variant of a kernel's two instances, for __half and __nv_bfloat16.
template <typename Half, typename Arguments>
constexpr Variant<Arguments> variant_of(void (*fp16)(Arguments), void (*bf16)(Arguments)) {
  return {Half::kHeadDim,
          {.q = Half::kBlockQ,
           .kv = Half::kBlockKv,
           .warps = Half::kThreads / 32,
           .stages = Half::kStages},
          Half::kThreads,
          sizeof(typename Half::Shared),
          fp16,
          bf16};
}

}  // namespace flashbench::kernels::sm90
