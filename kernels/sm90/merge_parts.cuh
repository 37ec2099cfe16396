// Merges the parts of a forward pass whose thread blocks divided the keys among themselves. With
// O_i and L_i of part i, of which a row may have seen no key (L_i = -infinity, O_i = 0):
//   L = log sum_i exp(L_i),  O = sum_i exp(L_i - L) O_i.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/ptx/cvt.h"
#include "kernels/ptx/griddepcontrol.h"

namespace flashbench::kernels::sm90 {

struct MergeArguments {
  const float *o_parts, *logsumexp_parts;  // [parts, rows, head_dim] and [parts, rows]
  int parts, head_dim;                     // at most 64, and a multiple of 4
  int warps_each;                          // for a row; see warps_of_merge()
  int64_t rows;                            // of all heads, in the order of the logsumexp
  void* o;
  float* logsumexp;
  int64_t o_batch_stride, o_head_stride, o_row_stride;  // in elements
  int heads;
  int length;               // rows of a head; if packed, of all requests
  bool packed;              // rows of O count through all requests
  const int* cu_seqlens_q;  // [requests + 1]; null: all rows exist
  int requests;

  __device__ bool exists(int batch, int row) const {
    if (cu_seqlens_q == nullptr) return true;
    if (packed) return row < cu_seqlens_q[requests];
    return row < cu_seqlens_q[batch + 1] - cu_seqlens_q[batch];
  }
};

inline constexpr float kNoKey = -std::numeric_limits<float>::infinity();
inline constexpr int kMergeWarps = 8, kMergeThreads = 32 * kMergeWarps;

// A warp has loads of 8 parts in flight; few rows of many parts would wait for one after the other.
constexpr int warps_of_merge(int64_t parts) {
  int warps = 1;
  while (warps < kMergeWarps && 8 * warps < parts) warps *= 2;
  return warps;
}

template <typename T>
__global__ void __launch_bounds__(kMergeThreads)
    merge_parts_kernel(const __grid_constant__ MergeArguments a) {
  constexpr unsigned kAllLanes = ~0u;
  __shared__ float4 sums[kMergeWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first_part = warp % a.warps_each;
  const int64_t index = (int64_t{blockIdx.x} * kMergeWarps + warp) / a.warps_each;
  const int row = static_cast<int>(index % a.length);
  const int head = static_cast<int>(index / a.length % a.heads);
  const int batch = static_cast<int>(index / a.length / a.heads);
  const bool exists = index < a.rows && a.exists(batch, row);

  // The loads of a pass over 128 columns. Those of the first are in flight while the weights are
  // computed.
  float4 loaded[8];
  const auto load = [&](int column) {
    const float* const o_parts = a.o_parts + index * a.head_dim + column;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int part = first_part + i * a.warps_each;
      loaded[i] = exists && column < a.head_dim && part < a.parts
                      ? *reinterpret_cast<const float4*>(o_parts + part * a.rows * a.head_dim)
                      : float4{};
    }
  };
  ptx::griddepcontrol_wait();
  load(4 * lane);

  // Lane i has the weights of the parts i and i + 32.
  float weights[2], maximum = kNoKey;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int part = lane + 32 * i;
    weights[i] = exists && part < a.parts ? a.logsumexp_parts[part * a.rows + index] : kNoKey;
    maximum = fmaxf(maximum, weights[i]);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, distance));
  }
  float sum = 0;
  for (float& weight : weights) {
    weight = expf(weight - (maximum == kNoKey ? 0 : maximum));
    sum += weight;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  if (exists && first_part == 0 && lane == 0) a.logsumexp[index] = maximum + logf(sum);
  const float inverse = sum == 0 ? 0 : 1 / sum;

  for (int first = 0; first < a.head_dim; first += 4 * 32) {
    const int column = first + 4 * lane;
    const bool has = exists && column < a.head_dim;
    if (first > 0) load(column);
    float4 merged = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int part = first_part + i * a.warps_each;
      const float factor =
          inverse * __shfl_sync(kAllLanes, part < 32 ? weights[0] : weights[1], part % 32);
      merged.x += factor * loaded[i].x;
      merged.y += factor * loaded[i].y;
      merged.z += factor * loaded[i].z;
      merged.w += factor * loaded[i].w;
    }
    if (a.warps_each > 1) {
      sums[warp][lane] = merged;
      __syncthreads();
      if (first_part == 0) {
        for (int other = 1; other < a.warps_each; ++other) {
          const float4 of_other = sums[warp + other][lane];
          merged.x += of_other.x;
          merged.y += of_other.y;
          merged.z += of_other.z;
          merged.w += of_other.w;
        }
      }
      __syncthreads();
    }
    if (has && first_part == 0) {
      T* const o = static_cast<T*>(a.o) + batch * a.o_batch_stride + head * a.o_head_stride +
                   row * a.o_row_stride;
      *reinterpret_cast<uint2*>(o + column) =
          make_uint2(ptx::cvt_rn_x2<T>(merged.x, merged.y), ptx::cvt_rn_x2<T>(merged.z, merged.w));
    }
  }
}

}  // namespace flashbench::kernels::sm90
