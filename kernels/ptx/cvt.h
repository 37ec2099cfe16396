// cvt.rn: rounds two floats to nearest even and packs them as 16-bit elements (sm_80).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace flashbench::ptx {

// `low` becomes the lower half, which comes first in memory.
template <typename T>
__device__ __forceinline__ uint32_t cvt_rn_x2(float low, float high);

template <>
__device__ __forceinline__ uint32_t cvt_rn_x2<__half>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

template <>
__device__ __forceinline__ uint32_t cvt_rn_x2<__nv_bfloat16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

}  // namespace flashbench::ptx
