// Makes the description of a Hopper kernel that is compiled for one configuration.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/variant.h"

namespace flashbench::kernels::sm90 {

// Of its two instances, for __half and __nv_bfloat16.
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
