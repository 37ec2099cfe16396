// Merges the parts of a forward pass whose thread blocks divided the keys among themselves. With
// O_i and L_i of part i, of which a row may have seen no key (L_i = -infinity, O_i = 0):
//   L = log sum_i exp(L_i),  O = sum_i exp(L_i - L) O_i.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/common/divisor.cuh"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/griddepcontrol.h"

namespace flashbench::kernels::sm90 {

struct MergeArguments {
  const float *o_parts, *logsumexp_parts;  // [parts, rows, head_dim] and [parts, rows]
  int parts, head_dim;                     // at most 64, and a multiple of 4
  int warps_each;                          // for a row; see warps_of_merge()
  int64_t rows;                            // of all heads, in the order of the logsumexp; < 2^28
  void* o;
  float* logsumexp;
  int64_t o_batch_stride, o_head_stride, o_row_stride;  // in elements
  Divisor heads;
  Divisor length;           // rows of a head; if packed, of all requests
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

// A warp has the loads of so many parts in flight; few rows of many parts would wait for one after
// the other.
inline constexpr int kMergeParts = 8;

// A power of two.
constexpr int warps_of_merge(int64_t parts) {
  int warps = 1;
  while (warps < kMergeWarps && kMergeParts * warps < parts) warps *= 2;
  return warps;
}

template <typename T>
__global__ void __launch_bounds__(kMergeThreads)
    merge_parts_kernel(const __grid_constant__ MergeArguments a) {
  __shared__ float4 sums_of_o[kMergeWarps][32];
  __shared__ float2 maxima_and_sums[kMergeWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first_part = warp & (a.warps_each - 1), first_warp = warp - first_part;
  const int index =
      (static_cast<int>(blockIdx.x) * kMergeWarps + warp) >> (__ffs(a.warps_each) - 1);
  const int batch_head = a.length.quotient(index), row = a.length.remainder(index);
  const int batch = a.heads.quotient(batch_head), head = a.heads.remainder(batch_head);
  const bool exists = index < a.rows && a.exists(batch, row);
  const auto has_part = [&](int i) { return exists && first_part + i * a.warps_each < a.parts; };
  const int64_t first_part_row = first_part * a.rows + index, step = a.warps_each * a.rows;

  // The loads of a pass over 128 columns. Those of the first are in flight while the weights are
  // computed.
  float4 loaded[kMergeParts];
  const auto load = [&](int column) {
    const float* from = a.o_parts + first_part_row * a.head_dim + column;
#pragma unroll
    for (int i = 0; i < kMergeParts; ++i, from += step * a.head_dim) {
      loaded[i] =
          has_part(i) && column < a.head_dim ? *reinterpret_cast<const float4*>(from) : float4{};
    }
  };
  ptx::griddepcontrol_wait();
  float weights[kMergeParts], maximum = kNoKey, sum = 0;
  const float* logsumexp = a.logsumexp_parts + first_part_row;
#pragma unroll
  for (int i = 0; i < kMergeParts; ++i, logsumexp += step) {
    weights[i] = has_part(i) ? *logsumexp : kNoKey;
  }
  load(4 * lane);

  // Every lane has the weights of this warp's parts: no lane waits for another.
  const auto weight_of = [](float logsumexp, float of_all) {
    return expf(logsumexp - (of_all == kNoKey ? 0 : of_all));
  };
  for (const float weight : weights) maximum = fmaxf(maximum, weight);
  for (float& weight : weights) {
    weight = weight_of(weight, maximum);
    sum += weight;
  }
  if (a.warps_each > 1) {
    if (lane == 0) maxima_and_sums[warp] = {maximum, sum};
    __syncthreads();
    float of_row = kNoKey, sum_of_row = 0;
    for (int i = 0; i < a.warps_each; ++i) {
      of_row = fmaxf(of_row, maxima_and_sums[first_warp + i].x);
    }
    for (int i = 0; i < a.warps_each; ++i) {
      const float2 other = maxima_and_sums[first_warp + i];
      sum_of_row += other.y * weight_of(other.x, of_row);
    }
    const float factor = weight_of(maximum, of_row);
    for (float& weight : weights) weight *= factor;
    maximum = of_row;
    sum = sum_of_row;
  }
  if (exists && first_part == 0 && lane == 0) a.logsumexp[index] = maximum + logf(sum);
  const float inverse = sum == 0 ? 0 : 1 / sum;
  for (float& weight : weights) weight *= inverse;

  for (int first = 0; first < a.head_dim; first += 4 * 32) {
    const int column = first + 4 * lane;
    if (first > 0) load(column);
    float4 merged = {};
#pragma unroll
    for (int i = 0; i < kMergeParts; ++i) {
      merged.x += weights[i] * loaded[i].x;
      merged.y += weights[i] * loaded[i].y;
      merged.z += weights[i] * loaded[i].z;
      merged.w += weights[i] * loaded[i].w;
    }
    if (a.warps_each > 1) {
      sums_of_o[warp][lane] = merged;
      __syncthreads();
      if (first_part == 0) {
        for (int other = 1; other < a.warps_each; ++other) {
          const float4 of_other = sums_of_o[warp + other][lane];
          merged.x += of_other.x;
          merged.y += of_other.y;
          merged.z += of_other.z;
          merged.w += of_other.w;
        }
      }
      __syncthreads();
    }
    if (exists && column < a.head_dim && first_part == 0) {
      T* const o = static_cast<T*>(a.o) + batch * a.o_batch_stride + head * a.o_head_stride +
                   row * a.o_row_stride;
      *reinterpret_cast<uint2*>(o + column) =
          make_uint2(ptx::cvt_rn_x2<T>(merged.x, merged.y), ptx::cvt_rn_x2<T>(merged.z, merged.w));
    }
  }
}

}  // namespace flashbench::kernels::sm90
