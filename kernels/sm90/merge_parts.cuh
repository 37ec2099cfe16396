// Merges the parts of a forward pass whose thread blocks divided the keys among themselves. With
// O_i and L_i of part i, of which a row may have seen no key (L_i = -infinity, O_i = 0):
//   L = log sum_i exp(L_i),  O = sum_i exp(L_i - L) O_i.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/common/divisor.cuh"
#include "kernels/common/half_types.h"
#include "kernels/common/launch.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/sm90/forward_blocks.h"

namespace flashbench::kernels::sm90 {

struct MergeArguments {
  const float *o_parts, *logsumexp_parts;  // [parts, rows, head_dim] and [parts, rows]
  int parts, head_dim;                     // at most 64, and a multiple of 4
  int rows;                                // of all heads, in the order of the logsumexp; < 2^22
  int log_lanes;                           // see MergeThreads
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

// Thread blocks for each multiprocessor. Without this limit the compiler saves registers for a
// third, and has fewer loads in flight.
inline constexpr int kMergeThreads = 512, kMergeBlocksAtOnce = 2;

// A thread has 4 columns of a row, of up to 8 parts, whose loads are in flight together. Few rows
// of many parts would wait for one load after the other.
inline constexpr int kMergeColumns = 4, kMergeParts = 8;

// The threads of a row: a group for each kMergeParts parts, with a lane for each kMergeColumns
// columns. Powers of two, at most kMergeThreads together.
struct MergeThreads {
  int groups, log_lanes;

  MergeThreads(int64_t head_dim, int64_t parts)
      : groups(std::bit_ceil(static_cast<uint32_t>((parts + kMergeParts - 1) / kMergeParts))),
        log_lanes(std::bit_width(static_cast<uint64_t>(head_dim / kMergeColumns - 1))) {}
  int64_t thread_blocks(int64_t rows) const {
    const int64_t rows_each = (kMergeThreads >> log_lanes) / groups;
    return (rows + rows_each - 1) / rows_each;
  }
};
inline constexpr int kMostMergeGroups = kMostKeyParts / kMergeParts;
static_assert(kMostMergeGroups == 8);

__device__ __forceinline__ float merge_weight(float logsumexp, float maximum) {
  constexpr float kLog2E = 1.44269504f;
  return ptx::ex2_approx_ftz(kLog2E * (logsumexp - (maximum == kNoKey ? 0 : maximum)));
}
__device__ __forceinline__ float merge_inverse(float sum) {
  return sum == 0 ? 0 : __fdividef(1, sum);
}

template <typename T, int kGroups>
__global__ void __launch_bounds__(kMergeThreads, kMergeBlocksAtOnce)
    merge_parts_kernel(const __grid_constant__ MergeArguments a) {
  struct Sums {
    float maximum, sum;  // of the logsumexp, and of the weights exp(L_i - maximum)
  };
  // Of those of several groups.
  __shared__ Sums sums_of_groups[kMergeThreads];
  __shared__ float o_of_groups[kMergeThreads * kMergeColumns];

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & ((1 << a.log_lanes) - 1), column = kMergeColumns * lane;
  const int group = thread >> a.log_lanes, first_part = group % kGroups;
  const int index =
      ((static_cast<int>(blockIdx.x) * kMergeThreads + thread) >> a.log_lanes) / kGroups;
  const int batch_head = a.length.quotient(index), row = a.length.remainder(index);
  const int batch = a.heads.quotient(batch_head), head = a.heads.remainder(batch_head);
  const bool exists = index < a.rows && a.exists(batch, row);
  T* const o = static_cast<T*>(a.o) + batch * a.o_batch_stride + head * a.o_head_stride +
               row * a.o_row_stride;

  const bool inside = exists && column < a.head_dim;
  const int parts_from_first = inside ? a.parts - first_part : 0;
  const auto has_part = [&](int i) { return i * kGroups < parts_from_first; };
  const int64_t first_row = int64_t{first_part} * a.rows + index;
  const int64_t step = int64_t{a.rows} * kGroups;
  const float* logsumexp = a.logsumexp_parts + first_row;
  const float* o_part = a.o_parts + first_row * a.head_dim + column;
  ptx::griddepcontrol_wait();
  float weights[kMergeParts];
#pragma unroll
  for (int i = 0; i < kMergeParts; ++i, logsumexp += step) {
    weights[i] = has_part(i) ? *logsumexp : kNoKey;
  }
  float4 parts[kMergeParts];
#pragma unroll
  for (int i = 0; i < kMergeParts; ++i, o_part += step * a.head_dim) {
    parts[i] = has_part(i) ? *reinterpret_cast<const float4*>(o_part) : float4{};
  }

  // Every lane computes the weights of its group: no lane waits for another.
  Sums all{kNoKey, 0};
  float4 merged = {};
  for (const float weight : weights) all.maximum = fmaxf(all.maximum, weight);
#pragma unroll
  for (int i = 0; i < kMergeParts; ++i) {
    const float weight = merge_weight(weights[i], all.maximum);
    all.sum += weight;
    merged.x += weight * parts[i].x;
    merged.y += weight * parts[i].y;
    merged.z += weight * parts[i].z;
    merged.w += weight * parts[i].w;
  }
  if constexpr (kGroups == 1) {
    if (!inside) return;
    const float inverse = merge_inverse(all.sum);
    *reinterpret_cast<uint2*>(o + column) =
        make_uint2(ptx::cvt_rn_x2<T>(inverse * merged.x, inverse * merged.y),
                   ptx::cvt_rn_x2<T>(inverse * merged.z, inverse * merged.w));
    if (lane == 0) a.logsumexp[index] = all.maximum + logf(all.sum);
  } else {
    // The threads of all groups divide the columns of what they have among themselves.
    *reinterpret_cast<float4*>(o_of_groups + kMergeColumns * thread) = merged;
    if (lane == 0) sums_of_groups[group] = all;
    __syncthreads();
    if (!exists) return;
    const int first_group = group - first_part, first_thread = first_group << a.log_lanes;
    float weights_of_groups[kGroups];
    all = {kNoKey, 0};
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      all.maximum = fmaxf(all.maximum, sums_of_groups[first_group + i].maximum);
    }
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const Sums& one = sums_of_groups[first_group + i];
      weights_of_groups[i] = merge_weight(one.maximum, all.maximum);
      all.sum += weights_of_groups[i] * one.sum;
    }
    const float inverse = merge_inverse(all.sum);
    const float* const o_of_row = o_of_groups + kMergeColumns * first_thread;
    const int columns = kMergeColumns << a.log_lanes;  // of a group in shared memory
    for (int two = 2 * (thread - first_thread); two < a.head_dim; two += kGroups * columns / 2) {
      float2 sum = {};
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        const auto part = *reinterpret_cast<const float2*>(o_of_row + i * columns + two);
        sum.x += weights_of_groups[i] * part.x;
        sum.y += weights_of_groups[i] * part.y;
      }
      *reinterpret_cast<uint32_t*>(o + two) = ptx::cvt_rn_x2<T>(inverse * sum.x, inverse * sum.y);
    }
    if (thread == first_thread) a.logsumexp[index] = all.maximum + logf(all.sum);
  }
}

template <int kGroups>
CudaKernel<MergeArguments> merge_kernel(Dtype dtype) {
  return {"sm90_merge_parts",
          for_half(dtype, merge_parts_kernel<__half, kGroups>,
                   merge_parts_kernel<__nv_bfloat16, kGroups>),
          kMergeThreads};
}
inline CudaKernel<MergeArguments> merge_kernel(Dtype dtype, const MergeThreads& threads) {
  switch (threads.groups) {
    case 1:
      return merge_kernel<1>(dtype);
    case 2:
      return merge_kernel<2>(dtype);
    case 4:
      return merge_kernel<4>(dtype);
    default:
      return merge_kernel<kMostMergeGroups>(dtype);
  }
}

}  // namespace flashbench::kernels::sm90
