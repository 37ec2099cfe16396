// Vectors of 16 or 32 bytes between memory and fp32 registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace flashbench::kernels::naive {

template <typename T>
struct alignas(16) Packed {
  static constexpr int kWidth = 16 / sizeof(T);
  T values[kWidth];
};

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__half x) {
  return __half2float(x);
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <typename T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// kCount values from an address aligned to 16 bytes.
template <int kCount, typename T>
__device__ void load_vector(const T* from, float (&to)[kCount]) {
  constexpr int kWidth = Packed<T>::kWidth;
  static_assert(kCount % kWidth == 0);
#pragma unroll
  for (int i = 0; i < kCount; i += kWidth) {
    const auto packed = *reinterpret_cast<const Packed<T>*>(from + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) to[i + j] = to_float(packed.values[j]);
  }
}

template <int kCount, typename T>
__device__ void store_vector(const float (&from)[kCount], T* to) {
  constexpr int kWidth = Packed<T>::kWidth;
  static_assert(kCount % kWidth == 0);
#pragma unroll
  for (int i = 0; i < kCount; i += kWidth) {
    Packed<T> packed;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) packed.values[j] = from_float<T>(from[i + j]);
    *reinterpret_cast<Packed<T>*>(to + i) = packed;
  }
}

}  // namespace flashbench::kernels::naive
