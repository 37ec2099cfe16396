// cvt.rn: rounds floats to nearest even and packs them, as 16-bit elements (sm_80) or as e4m3
// (sm_89), and widens e4m3 (sm_89).
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

// Four floats as e4m3; the first comes first in memory. What is beyond 448 becomes 448; NaN stays.
__device__ __forceinline__ uint32_t cvt_rn_satfinite_e4m3x4(float x0, float x1, float x2,
                                                            float x3) {
  uint32_t packed;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}\n"
      : "=r"(packed)
      : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
  return packed;
}

// Four e4m3 as fp16, which holds each exactly; NaN stays. `low` has those that come first in
// memory.
__device__ __forceinline__ void cvt_rn_f16x2_e4m3x4(uint32_t bytes, uint32_t& low, uint32_t& high) {
  asm("{\n.reg .b16 first, second;\n"
      "mov.b32 {first, second}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, first;\n"
      "cvt.rn.f16x2.e4m3x2 %1, second;\n}\n"
      : "=r"(low), "=r"(high)
      : "r"(bytes));
}

}  // namespace flashbench::ptx
