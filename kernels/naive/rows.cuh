// Rows of scores and of tensors: their addresses, visible keys, maxima and sums.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <limits>

#include "attention/problem.h"
#include "kernels/common/with_type.cuh"
#include "kernels/naive/softmax_cuda.h"
#include "kernels/ptx/ex2.h"

namespace flashbench::kernels::naive {

constexpr int kWarp = 32;
constexpr int kMinThreads = 128;  // per thread block; a row belongs to a warp or to a block
constexpr int kMaxThreads = 1024;
constexpr unsigned kAllLanes = 0xffffffff;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2e = 1.4426950408889634f;

// exp(unit * (x - maximum)) for scores that are stored in multiples of `unit`. Subtracts before
// scaling, because x and maximum can be far larger than their difference.
__device__ inline float exp_below(float x, float maximum, float unit) {
  return ptx::ex2_approx_ftz((x - maximum) * (unit * kLog2e));
}

// Replaces a maximum of -infinity by 0, so that every exp(x - maximum) of the row is 0 and not NaN.
__device__ inline float finite_maximum(float maximum) {
  return maximum == -kInfinity ? 0.0f : maximum;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lane));
  }
  return x;
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(kAllLanes, x, lane);
  return x;
}

// The maximum of a row, as scores are stored, and the sum of exp(x - maximum).
struct RowSum {
  float maximum, sum;

  __device__ float logsumexp(float unit) const { return maximum * unit + logf(sum); }
  // The factor that turns exp(x - own_maximum) into a probability; 0 for an empty row.
  __device__ float factor(float own_maximum, float unit) const {
    return sum == 0.0f ? 0.0f : exp_below(own_maximum, maximum, unit) * __frcp_rn(sum);
  }
};

// Reduces over kWarps neighbouring warps of a thread block, which share a row.
template <int kWarps>
__device__ RowSum group_sum(RowSum own, float unit) {
  if constexpr (kWarps == 1) {
    return own;
  } else {
    __shared__ RowSum all[kMaxThreads / kWarp];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane == 0) all[warp] = own;
    __syncthreads();
    const RowSum one = lane < kWarps ? all[warp / kWarps * kWarps + lane] : RowSum{0.0f, 0.0f};
    const float maximum = finite_maximum(warp_max(one.sum == 0.0f ? -kInfinity : one.maximum));
    const float sum = one.sum == 0.0f ? 0.0f : one.sum * exp_below(one.maximum, maximum, unit);
    return {maximum, warp_sum(sum)};
  }
}

// The range of keys that a row sees: [0, 0) if the row does not exist, so that sees_any() is false
// and no score of it is read.
struct SeenKeys {
  int first, end;

  __device__ bool sees(int column) const { return column >= first && column < end; }
  // Whether it sees any of the kWidth keys from `column` on; also true where an empty range lies
  // between two of them.
  template <int kWidth>
  __device__ bool sees_any(int column) const {
    return column + kWidth > first && column < end;
  }
};

// Sets the masked elements of the vector of scores that starts at `column`.
template <int kWidth>
__device__ void mask_vector(int column, const SeenKeys& row, float masked, float (&x)[kWidth]) {
  if (column >= row.first && column + kWidth <= row.end) return;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (!row.sees(column + j)) x[j] = masked;
  }
}

// A row of scores and the keys that it sees.
struct Row : SeenKeys {
  int64_t at;         // index of its first score
  int64_t statistic;  // index of its logsumexp, or of its D
  bool exists;

  // Divides in 32 bits: a 64-bit division would take longer than a short row.
  __device__ Row(const ScoreBlock& block, uint32_t index) {
    const auto rows = static_cast<uint32_t>(block.rows);
    const int64_t head = index / rows, query = block.first + index % rows;
    at = head * block.head_stride + query * block.row_stride;
    statistic = head * block.statistic_stride + query;
    const auto within = [&](int64_t key) {
      return static_cast<int>(key < 0 ? 0 : key < block.keys ? key : block.keys);
    };
    exists = index < block.heads * block.rows;
    first = exists ? within(query + block.band.first_from) : 0;
    end = exists ? within(query + block.band.end_from) : 0;
  }
};

// Where the rows of a [batch, heads, length, head_dim] tensor start.
struct RowsOf {
  int64_t heads, length, batch_stride, head_stride, row_stride;
  int head_dim;

  template <typename View>
  explicit RowsOf(const View& t)
      : heads(t.heads),
        length(t.length),
        batch_stride(t.batch_stride),
        head_stride(t.head_stride),
        row_stride(t.row_stride),
        head_dim(static_cast<int>(t.head_dim)) {}

  // `head` is an index into [batch, heads].
  __device__ int64_t offset(int64_t head, int64_t row) const {
    const auto index = static_cast<uint32_t>(head), per_batch = static_cast<uint32_t>(heads);
    return index / per_batch * batch_stride + index % per_batch * head_stride + row * row_stride;
  }
};

inline unsigned grid(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace flashbench::kernels::naive
