#include "kernels/naive/blocked_update.h"

#include "device/cuda_call.h"
#include "kernels/naive/rows.cuh"
#include "kernels/naive/vectors.cuh"

namespace flashbench::kernels {

namespace {

using namespace naive;

constexpr int kThreads = 128;
constexpr int kRows = kThreads / kWarp;  // per thread block: one per warp

template <typename T>
__global__ __launch_bounds__(kThreads) void update_kernel(ScoreBlock block, T* scores,
                                                          BlockedState state, bool first_block) {
  constexpr int kWidth = Packed<T>::kWidth;
  constexpr int kVectors = kBlockedKeys / kWarp / kWidth;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Row row(block, blockIdx.x * kRows + threadIdx.x / kWarp);
  if (!row.exists) return;

  float x[kVectors][kWidth];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * kWarp + lane) * kWidth;
    if (row.sees_any<kWidth>(column)) load_vector(scores + row.at + column, x[i]);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (!row.sees(column + j)) x[i][j] = -kInfinity;
    }
  }
  const float old_maximum = first_block ? -kInfinity : state.maximum[row.statistic];
  const float old_sum = first_block ? 0.0f : state.sum[row.statistic];
  float maximum = -kInfinity;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) maximum = fmaxf(maximum, x[i][j]);
  }
  maximum = fmaxf(old_maximum, warp_max(maximum));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * kWarp + lane) * kWidth;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      x[i][j] = exp_below(x[i][j], finite_maximum(maximum), block.unit);
      sum += x[i][j];
    }
    if (column < block.keys) store_vector(x[i], scores + row.at + column);
  }
  const float rescale = exp_below(old_maximum, finite_maximum(maximum), block.unit);
  sum = warp_sum(sum) + old_sum * rescale;
  if (lane == 0) {
    state.maximum[row.statistic] = maximum;
    state.sum[row.statistic] = sum;
  }
  if (first_block || maximum == old_maximum) return;
  float* o = state.o + row.statistic * state.head_dim;
  for (int64_t column = lane; column < state.head_dim; column += kWarp) o[column] *= rescale;
}

template <typename T>
__global__ __launch_bounds__(kThreads) void finish_kernel(BlockedState state, float unit,
                                                          int64_t first_query, int64_t rows,
                                                          RowsOf to_rows, T* to, float* logsumexp) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t row = blockIdx.x * kRows + threadIdx.x / kWarp;
  if (row >= rows) return;
  const auto length = static_cast<uint32_t>(to_rows.length);
  const int64_t head = row / length, query = row % length;
  const float sum = query < first_query ? 0.0f : state.sum[row];
  const bool empty = sum == 0.0f;
  T* o = to + to_rows.offset(head, query);
  for (int column = lane; column < to_rows.head_dim; column += kWarp) {
    const float x = empty ? 0.0f : state.o[row * state.head_dim + column] / sum;
    o[column] = from_float<T>(x);
  }
  if (lane == 0) logsumexp[row] = empty ? -kInfinity : state.maximum[row] * unit + logf(sum);
}

}  // namespace

void blocked_update(const ScoreBlock& block, void* scores, Dtype dtype, const BlockedState& state,
                    bool first_block, cudaStream_t stream) {
  with_type(dtype, [&](auto element) {
    using T = decltype(element);
    update_kernel<T><<<grid(block.heads * block.rows, kRows), kThreads, 0, stream>>>(
        block, static_cast<T*>(scores), state, first_block);
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

void blocked_finish(const BlockedState& state, float unit, int64_t first_query, const TensorView& o,
                    float* logsumexp, cudaStream_t stream) {
  const int64_t rows = o.batch * o.heads * o.length;
  with_type(o.dtype, [&](auto element) {
    using T = decltype(element);
    finish_kernel<T><<<grid(rows, kRows), kThreads, 0, stream>>>(
        state, unit, first_query, rows, RowsOf(o), static_cast<T*>(o.data), logsumexp);
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

}  // namespace flashbench::kernels
