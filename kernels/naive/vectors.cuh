// Loads and stores of 16- or 32-byte vectors, converted to and from fp32 registers.
#pragma once

#include <cstdint>

#include "kernels/common/convert.cuh"

namespace flashbench::kernels::naive {

template <typename T>
struct alignas(16) Packed {
  static constexpr int kWidth = 16 / sizeof(T);
  T values[kWidth];
};

// Loads kCount values from an address aligned to 16 bytes.
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
