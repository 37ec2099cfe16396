// Where K is not all finite, a product over all keys would let masked keys through to dQ, because
// 0 * NaN is NaN. The main kernels of the backward pass for Hopper notice it in blocks in which
// queries do not all see the same keys, and compute dQ of these key by key.
#pragma once

#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// Whether all scores of a thread are finite. A row of K that is not finite shows in the scores of
// all queries, whether they see it or not.
template <int kCount>
__device__ __forceinline__ bool all_finite(const float (&s)[kCount]) {
  bool finite = true;
#pragma unroll
  for (int i = 0; i < kCount; ++i) finite &= fabsf(s[i]) < INFINITY;
  return finite;
}

// The keys in a block of kKeys keys that a query sees. Those of the first query of its block end
// with `first`, those of each further query one later, up to `end`. With a window those of the
// first query begin with `begin`, those of each further query one later, too.
template <typename Work, int kKeys>
struct SeenKeys {
  int first, end, begin = 0;

  template <typename Arguments>
  __device__ SeenKeys(const Arguments& a, const Work& work, int first_query)
      : first(first_query + work.diagonal(a) + 1 - work.first_key),
        end(min(work.key_end(a) - work.first_key, kKeys)) {
    if constexpr (Work::kKnowsWindows) {
      begin = first_query + work.first_from(a) - work.first_key;
    }
  }
  __device__ int first_of(int row) const { return Work::kKnowsWindows ? max(0, begin + row) : 0; }
  __device__ int end_of(int row) const { return min(first + row, end); }
};

// The element at (row, column) of a matrix in shared memory with panels of this size.
template <typename T>
__device__ float element(const char* matrix, int panel_bytes, int row, int column) {
  const int chunk = column % 64 / 8 ^ row % 8;
  const char* at = matrix + column / 64 * panel_bytes + row * kRowBytes + chunk * 16;
  return static_cast<float>(reinterpret_cast<const T*>(at)[column % 8]);
}

}  // namespace flashbench::kernels::sm90
