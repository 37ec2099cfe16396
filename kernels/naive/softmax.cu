#include <algorithm>
#include <stdexcept>

#include "device/cuda_call.h"
#include "kernels/common/alignment.h"
#include "kernels/common/mask.h"
#include "kernels/naive/rows.cuh"
#include "kernels/naive/softmax_cuda.h"
#include "kernels/naive/vectors.cuh"

namespace flashbench::kernels {

namespace {

using namespace naive;

constexpr int kLongestRow = 32768;  // that fits registers
constexpr int kRedoPasses = 4;      // over rows; the reads of all passes are in flight together

// Softmax of rows that stay in registers: kThreads threads hold kVectors vectors each. Only vectors
// that are not visible as a whole are masked element by element; otherwise instructions, and not
// memory, would limit the speed.
template <typename In, typename Out, int kThreads, int kVectors>
__global__ __launch_bounds__(kThreads < kMinThreads ? kMinThreads : kThreads) void softmax_kernel(
    ScoreBlock block, const In* scores, Out* probabilities, float* logsumexp) {
  constexpr int kWidth = Packed<Out>::kWidth;
  constexpr int kRows = kThreads < kMinThreads ? kMinThreads / kThreads : 1;  // per thread block
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  const Row row(block, blockIdx.x * kRows + threadIdx.x / kThreads);

  float x[kVectors][kWidth];
  float maximum = -kInfinity;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * kThreads + thread) * kWidth;
    if (row.sees_any<kWidth>(column)) {
      load_vector(scores + row.at + column, x[i]);
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) x[i][j] = -kInfinity;
    }
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    mask_vector((i * kThreads + thread) * kWidth, row, -kInfinity, x[i]);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) maximum = fmaxf(maximum, x[i][j]);
  }
  maximum = finite_maximum(warp_max(maximum));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      x[i][j] = exp_below(x[i][j], maximum, block.unit);
      sum += x[i][j];
    }
  }
  const RowSum total = group_sum<kThreads / kWarp>({maximum, warp_sum(sum)}, block.unit);
  const float factor = total.factor(maximum, block.unit);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * kThreads + thread) * kWidth;
    if (column >= block.keys || !row.exists) continue;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[i][j] *= factor;
    mask_vector(column, row, 0.0f, x[i]);  // the factor may be NaN
    store_vector(x[i], probabilities + row.at + column);
  }
  if (thread == 0 && row.exists) logsumexp[row.statistic] = total.logsumexp(block.unit);
}

// Softmax of rows that do not fit registers: one pass for maximum and sum, one for the
// probabilities.
template <typename In, typename Out>
__global__ __launch_bounds__(kMaxThreads) void long_softmax_kernel(ScoreBlock block,
                                                                   const In* scores,
                                                                   Out* probabilities,
                                                                   float* logsumexp) {
  constexpr int kWidth = Packed<Out>::kWidth;
  constexpr int kStep = kMaxThreads * kWidth;
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  const Row row(block, blockIdx.x);

  float x[kWidth];
  const auto load_scores = [&](int column) {
    load_vector(scores + row.at + column, x);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (!row.sees(column + j)) x[j] = -kInfinity;
    }
  };
  float maximum = -kInfinity, sum = 0;  // this thread's
  for (int column = first; column < row.end; column += kStep) {
    load_scores(column);
    float next = maximum;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) next = fmaxf(next, x[j]);
    sum *= exp_below(maximum, finite_maximum(next), block.unit);
    maximum = next;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += exp_below(x[j], finite_maximum(maximum), block.unit);
  }
  const float warp_maximum = finite_maximum(warp_max(maximum));
  sum *= exp_below(maximum, warp_maximum, block.unit);
  const RowSum total = group_sum<kMaxThreads / kWarp>({warp_maximum, warp_sum(sum)}, block.unit);
  const float factor = total.factor(total.maximum, block.unit);
  for (int column = first; column < block.keys; column += kStep) {
    if (column < row.end) load_scores(column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      x[j] = row.sees(column + j) ? exp_below(x[j], total.maximum, block.unit) * factor : 0.0f;
    }
    store_vector(x, probabilities + row.at + column);
  }
  if (threadIdx.x == 0) logsumexp[row.statistic] = total.logsumexp(block.unit);
}

template <typename In, typename Out, int kThreads>
__global__ __launch_bounds__(kMinThreads) void softmax_gradient_kernel(ScoreBlock block,
                                                                       const Out* probabilities,
                                                                       const In* dp, Out* ds,
                                                                       const float* delta) {
  constexpr int kWidth = Packed<Out>::kWidth;
  constexpr int kRows = kMinThreads / kThreads;
  constexpr int kUnrolled = 4;  // vectors in flight
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  const Row row(block, blockIdx.x * kRows + threadIdx.x / kThreads);
  if (!row.exists) return;
  const float d = delta[row.statistic];
#pragma unroll kUnrolled
  for (int column = thread * kWidth; column < block.keys; column += kThreads * kWidth) {
    float p[kWidth]{}, x[kWidth]{};
    if (row.sees_any<kWidth>(column)) {
      load_vector(probabilities + row.at + column, p);
      load_vector(dp + row.at + column, x);
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[j] = p[j] * (x[j] - d);
    mask_vector(column, row, 0.0f, x);
    store_vector(x, ds + row.at + column);
  }
}

// kLanes threads of a warp share a row. Handles any alignment: the tensors are a small part of the
// traffic.
template <typename T, int kLanes>
__global__ __launch_bounds__(kMinThreads) void row_dots_kernel(RowsOf o_rows, const T* o,
                                                               RowsOf d_o_rows, const T* d_o,
                                                               int64_t rows, bool aligned,
                                                               float* delta) {
  constexpr int kWidth = Packed<T>::kWidth;
  const uint32_t index = blockIdx.x * (kMinThreads / kLanes) + threadIdx.x / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float sum = 0;
  if (index < rows) {
    const auto length = static_cast<uint32_t>(o_rows.length);
    const int64_t head = index / length, row = index % length;
    const T* a = o + o_rows.offset(head, row);
    const T* b = d_o + d_o_rows.offset(head, row);
    for (int column = lane * kWidth; column < o_rows.head_dim; column += kLanes * kWidth) {
      float x[kWidth], y[kWidth];
      if (aligned) {
        load_vector(a + column, x);
        load_vector(b + column, y);
      } else {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          x[j] = to_float(a[column + j]);
          y[j] = to_float(b[column + j]);
        }
      }
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum += x[j] * y[j];
    }
  }
#pragma unroll
  for (int other = kLanes / 2; other > 0; other /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, other);
  }
  if (index < rows && lane == 0) delta[index] = sum;
}

// A warp computes row `row` of C again.
template <typename T, typename Score>
__device__ void redo_row(const Row& row, float alpha, const Score* scores, const T* right,
                         int64_t right_stride, int head_dim, T* product) {
  for (int column = static_cast<int>(threadIdx.x) % kWarp; column < head_dim; column += kWarp) {
    float sum = 0;
    for (int key = row.first; key < row.end; ++key) {
      sum += to_float(scores[row.at + key]) * to_float(right[key * right_stride + column]);
    }
    product[column] = from_float<T>(alpha * sum);
  }
}

// kLanes threads check a row, and a warp computes it again if it is not finite. A finite row costs
// one read of C, some of it from the L2 cache.
template <typename T, typename Score, int kLanes>
__global__ __launch_bounds__(kMinThreads) void redo_rows_kernel(ScoreBlock block, float alpha,
                                                                const Score* scores, RowsOf b_rows,
                                                                const T* b, uint32_t sharers,
                                                                RowsOf c_rows, T* c, bool aligned) {
  constexpr int kWidth = Packed<T>::kWidth;
  constexpr uint32_t kPassRows = kWarp / kLanes;
  const auto q_len = static_cast<uint32_t>(block.q_len);
  const uint32_t rows = static_cast<uint32_t>(block.heads) * q_len;
  const uint32_t warp = blockIdx.x * (kMinThreads / kWarp) + threadIdx.x / kWarp;
  const uint32_t first = warp * kRedoPasses * kPassRows;
  const uint32_t lane = threadIdx.x % kWarp;
  unsigned spoilt[kRedoPasses];  // one bit per lane
#pragma unroll
  for (int pass = 0; pass < kRedoPasses; ++pass) {
    const uint32_t index = first + pass * kPassRows + lane / kLanes;
    float sum = 0;  // of x * 0: 0, or NaN if any x is not finite
    if (index < rows) {
      const T* product = c + c_rows.offset(index / q_len, index % q_len);
      for (int column = static_cast<int>(lane % kLanes) * kWidth; column < c_rows.head_dim;
           column += kLanes * kWidth) {
        float x[kWidth];
        if (aligned) {
          load_vector(product + column, x);
        } else {
#pragma unroll
          for (int j = 0; j < kWidth; ++j) x[j] = to_float(product[column + j]);
        }
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sum += x[j] * 0.0f;
      }
    }
    spoilt[pass] = __ballot_sync(kAllLanes, sum != 0.0f);
  }
#pragma unroll 1
  for (int pass = 0; pass < kRedoPasses; ++pass) {
    unsigned lanes = spoilt[0];
#pragma unroll
    for (int other = 1; other < kRedoPasses; ++other) {
      if (other == pass) lanes = spoilt[other];
    }
    for (uint32_t i = 0; lanes != 0 && i < kPassRows; ++i) {
      const unsigned of_row = kAllLanes >> (kWarp - kLanes) << (i * kLanes);
      if ((lanes & of_row) == 0) continue;
      const uint32_t index = first + pass * kPassRows + i, head = index / q_len;
      redo_row(Row(block, index), alpha, scores, b + b_rows.offset(head / sharers, 0),
               b_rows.row_stride, c_rows.head_dim, c + c_rows.offset(head, index % q_len));
    }
  }
}

template <typename T>
__global__ __launch_bounds__(kMinThreads) void zero_rows_kernel(RowsOf to_rows, int64_t first,
                                                                int64_t rows, int64_t elements,
                                                                T* to) {
  const int64_t index = int64_t{blockIdx.x} * kMinThreads + threadIdx.x;
  if (index >= elements) return;
  const int64_t row = index / to_rows.head_dim, column = index % to_rows.head_dim;
  to[to_rows.offset(row / rows, first + row % rows) + column] = from_float<T>(0.0f);
}

template <typename T>
__global__ __launch_bounds__(kMinThreads) void from_fp32_kernel(const float* from, RowsOf to_rows,
                                                                int64_t elements, T* to) {
  const int64_t index = int64_t{blockIdx.x} * kMinThreads + threadIdx.x;
  if (index >= elements) return;
  const int64_t row = index / to_rows.head_dim, column = index % to_rows.head_dim;
  to[to_rows.offset(row / to_rows.length, row % to_rows.length) + column] =
      from_float<T>(from[index]);
}

// Scores in fp32 or in the tensors' dtype; calls body(score, element).
template <typename Body>
void with_types(Dtype scores, Dtype dtype, const Body& body) {
  if (scores != dtype && scores != Dtype::fp32) {
    throw std::logic_error("scores are in fp32 or in the tensors' dtype");
  }
  with_type(dtype, [&](auto element) {
    if (scores == dtype) return body(element, element);
    body(float{}, element);
  });
}

float score_unit(Dtype scores) {
  switch (scores) {
    case Dtype::fp16:
      return kHalfScoreUnit;
    case Dtype::fp32:
    case Dtype::bf16:
      return 1;
    case Dtype::e4m3:
      break;
  }
  throw std::logic_error("scores of this dtype have no unit");
}

template <typename In, typename Out>
void launch_softmax(const ScoreBlock& block, const void* scores, void* probabilities,
                    float* logsumexp, cudaStream_t stream) {
  const int64_t rows = block.heads * block.rows;
  const auto* in = static_cast<const In*>(scores);
  auto* out = static_cast<Out*>(probabilities);
  const int64_t vectors = (block.keys + Packed<Out>::kWidth - 1) / Packed<Out>::kWidth;
  const auto launch = [&]<int kThreads, int kVectors>() {
    constexpr int kBlockThreads = std::max(kThreads, kMinThreads);
    if constexpr (kThreads * kVectors * Packed<Out>::kWidth <= kLongestRow) {
      if (vectors > kThreads * kVectors) return false;
      softmax_kernel<In, Out, kThreads, kVectors>
          <<<grid(rows, kBlockThreads / kThreads), kBlockThreads, 0, stream>>>(block, in, out,
                                                                               logsumexp);
      return true;
    }
    return false;
  };
  const bool fits = launch.template operator()<32, 1>() || launch.template operator()<32, 2>() ||
                    launch.template operator()<32, 3>() || launch.template operator()<32, 4>() ||
                    launch.template operator()<64, 3>() || launch.template operator()<64, 4>() ||
                    launch.template operator()<128, 3>() || launch.template operator()<128, 4>() ||
                    launch.template operator()<256, 3>() || launch.template operator()<256, 4>() ||
                    launch.template operator()<512, 3>() || launch.template operator()<512, 4>() ||
                    launch.template operator()<1024, 3>() ||
                    launch.template operator()<1024, 4>() || launch.template operator()<1024, 8>();
  if (!fits) {
    long_softmax_kernel<In, Out>
        <<<grid(rows, 1), kMaxThreads, 0, stream>>>(block, in, out, logsumexp);
  }
  FLASHBENCH_CUDA(cudaGetLastError());
}

}  // namespace

ScoreBlock ScoreBlock::whole(const Problem& p, Dtype scores) {
  ScoreBlock block;
  block.unit = score_unit(scores);
  block.heads = p.batch * p.q_heads;
  block.row_stride = (p.kv_len + kScoreRowStep - 1) / kScoreRowStep * kScoreRowStep;
  block.head_stride = p.q_len * block.row_stride;
  block.q_len = p.q_len;
  block.statistic_stride = p.q_len;
  block.rows = p.q_len;
  block.keys = p.kv_len;
  block.band = kernels::band(p);
  return block;
}

void naive_softmax(const ScoreBlock& block, const void* scores, Dtype scores_dtype,
                   void* probabilities, Dtype probabilities_dtype, float* logsumexp,
                   cudaStream_t stream) {
  with_types(scores_dtype, probabilities_dtype, [&](auto score, auto element) {
    launch_softmax<decltype(score), decltype(element)>(block, scores, probabilities, logsumexp,
                                                       stream);
  });
}

void naive_softmax_gradient(const ScoreBlock& block, const void* probabilities, const void* dp,
                            Dtype dp_dtype, void* ds, Dtype dtype, const float* delta,
                            cudaStream_t stream) {
  with_types(dp_dtype, dtype, [&](auto score, auto element) {
    using In = decltype(score);
    using Out = decltype(element);
    const auto launch = [&]<int kThreads>() {
      softmax_gradient_kernel<In, Out, kThreads>
          <<<grid(block.heads * block.rows, kMinThreads / kThreads), kMinThreads, 0, stream>>>(
              block, static_cast<const Out*>(probabilities), static_cast<const In*>(dp),
              static_cast<Out*>(ds), delta);
    };
    constexpr int64_t kShortRow = 1024;
    if (block.keys <= kShortRow) {
      launch.template operator()<kWarp>();
    } else {
      launch.template operator()<kMinThreads>();
    }
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

void naive_row_dots(const ConstTensorView& o, const ConstTensorView& d_o, float* delta,
                    cudaStream_t stream) {
  const int64_t rows = o.batch * o.heads * o.length;
  if (rows == 0) return;
  with_type(o.dtype, [&](auto element) {
    using T = decltype(element);
    const auto launch = [&]<int kLanes>() {
      row_dots_kernel<T, kLanes><<<grid(rows * kLanes, kMinThreads), kMinThreads, 0, stream>>>(
          RowsOf(o), static_cast<const T*>(o.data), RowsOf(d_o), static_cast<const T*>(d_o.data),
          rows, rows_aligned(o) && rows_aligned(d_o), delta);
    };
    if (o.head_dim <= 8 * Packed<T>::kWidth) {
      launch.template operator()<8>();
    } else {
      launch.template operator()<16>();
    }
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

void naive_redo_rows(const ScoreBlock& block, double alpha, const void* scores, Dtype scores_dtype,
                     const ConstTensorView& b, const TensorView& c, cudaStream_t stream) {
  if (block.rows == 0) return;
  with_types(scores_dtype, c.dtype, [&](auto score, auto element) {
    using Score = decltype(score);
    using T = decltype(element);
    constexpr int kLanes = 16;
    constexpr int64_t kBlockRows = kMinThreads / kLanes * kRedoPasses;
    redo_rows_kernel<T, Score, kLanes>
        <<<grid(block.heads * block.rows, kBlockRows), kMinThreads, 0, stream>>>(
            block, static_cast<float>(alpha), static_cast<const Score*>(scores), RowsOf(b),
            static_cast<const T*>(b.data), static_cast<uint32_t>(c.heads / b.heads), RowsOf(c),
            static_cast<T*>(c.data), rows_aligned(c));
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

void naive_zero_rows(const TensorView& to, int64_t first, int64_t rows, cudaStream_t stream) {
  const int64_t elements = to.batch * to.heads * rows * to.head_dim;
  if (elements == 0) return;
  with_type(to.dtype, [&](auto element) {
    using T = decltype(element);
    zero_rows_kernel<T><<<grid(elements, kMinThreads), kMinThreads, 0, stream>>>(
        RowsOf(to), first, rows, elements, static_cast<T*>(to.data));
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

void naive_from_fp32(const float* from, const TensorView& to, cudaStream_t stream) {
  const int64_t elements = to.elements();
  if (elements == 0) return;
  with_type(to.dtype, [&](auto element) {
    using T = decltype(element);
    from_fp32_kernel<T><<<grid(elements, kMinThreads), kMinThreads, 0, stream>>>(
        from, RowsOf(to), elements, static_cast<T*>(to.data));
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

}  // namespace flashbench::kernels
