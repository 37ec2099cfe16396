#include <algorithm>
#include <stdexcept>

#include "device/cuda_call.h"
#include "kernels/naive/rows.cuh"
#include "kernels/naive/softmax_cuda.h"
#include "kernels/naive/vectors.cuh"

namespace flashbench::kernels {

namespace {

constexpr int kMinThreads = 128;  // of a thread block; a warp has a row, or a block
constexpr int kMaxThreads = 1024;
constexpr int kMostValues = 32;  // of a row, in the registers of each of 1,024 threads
// The maximum of a row, and the sum of exp(x - maximum).
struct RowSum {
  float maximum, sum;

  __device__ float logsumexp() const { return maximum + logf(sum); }
  // What exp(x - own maximum) is to be multiplied by; 0 for an empty row.
  __device__ float factor(float own_maximum) const {
    return sum == 0.0f ? 0.0f : exp_below(own_maximum, maximum) / sum;
  }
};

// Over the warps of a thread block, all of which have the same row.
template <int kWarps>
__device__ RowSum block_sum(RowSum own) {
  if constexpr (kWarps == 1) {
    return own;
  } else {
    __shared__ RowSum all[kWarps];
    if (threadIdx.x % kWarp == 0) all[threadIdx.x / kWarp] = own;
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const RowSum one = lane < kWarps ? all[lane] : RowSum{0.0f, 0.0f};
    const float maximum = finite_maximum(warp_max(one.sum == 0.0f ? -kInfinity : one.maximum));
    const float sum = one.sum == 0.0f ? 0.0f : one.sum * exp_below(one.maximum, maximum);
    return {maximum, warp_sum(sum)};
  }
}

// The row stays in registers: kThreads threads have kVectors vectors each.
template <typename In, typename Out, int kThreads, int kVectors>
__global__ __launch_bounds__(kThreads < kMinThreads ? kMinThreads : kThreads) void softmax_kernel(
    ScoreBlock block, const In* scores, Out* probabilities, float* logsumexp) {
  constexpr int kWidth = Packed<Out>::kWidth;
  constexpr int kRows = kThreads < kMinThreads ? kMinThreads / kThreads : 1;  // of a thread block
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  const Row row(block, blockIdx.x * kRows + threadIdx.x / kThreads);
  if (!row.exists) return;  // a whole warp, where blocks have several rows

  float x[kVectors][kWidth];
  float maximum = -kInfinity;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * kThreads + thread) * kWidth;
    if (column < row.visible) load_vector(scores + row.at + column, x[i]);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (column + j >= row.visible) x[i][j] = -kInfinity;
    }
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) maximum = fmaxf(maximum, x[i][j]);
  }
  maximum = finite_maximum(warp_max(maximum));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      x[i][j] = exp_below(x[i][j], maximum);
      sum += x[i][j];
    }
  }
  const RowSum total = block_sum<kThreads / kWarp>({maximum, warp_sum(sum)});
  const float factor = total.factor(maximum);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * kThreads + thread) * kWidth;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      x[i][j] = column + j < row.visible ? x[i][j] * factor : 0.0f;  // the factor may be NaN
    }
    if (column < block.keys) store_vector(x[i], probabilities + row.at + column);
  }
  if (thread == 0) logsumexp[row.statistic] = total.logsumexp();
}

// Rows that registers cannot hold: once for maximum and sum, once more for the probabilities.
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
      if (column + j >= row.visible) x[j] = -kInfinity;
    }
  };
  float maximum = -kInfinity, sum = 0;  // of this thread
  for (int column = first; column < row.visible; column += kStep) {
    load_scores(column);
    float next = maximum;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) next = fmaxf(next, x[j]);
    sum *= exp_below(maximum, finite_maximum(next));
    maximum = next;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += exp_below(x[j], finite_maximum(maximum));
  }
  const float warp_maximum = finite_maximum(warp_max(maximum));
  sum *= exp_below(maximum, warp_maximum);
  const RowSum total = block_sum<kMaxThreads / kWarp>({warp_maximum, warp_sum(sum)});
  const float factor = total.factor(total.maximum);
  for (int column = first; column < block.keys; column += kStep) {
    if (column < row.visible) load_scores(column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      x[j] = column + j < row.visible ? exp_below(x[j], total.maximum) * factor : 0.0f;
    }
    store_vector(x, probabilities + row.at + column);
  }
  if (threadIdx.x == 0) logsumexp[row.statistic] = total.logsumexp();
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
    float p[kWidth], x[kWidth];
    if (column < row.visible) {
      load_vector(probabilities + row.at + column, p);
      load_vector(dp + row.at + column, x);
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      x[j] = column + j < row.visible ? p[j] * (x[j] - d) : 0.0f;
    }
    store_vector(x, ds + row.at + column);
  }
}

// kLanes threads of a warp have a row. Any alignment: the tensors are a small part of the traffic.
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

// A warp has a row. What is found finite costs a read of C, most of it from the L2 cache.
template <typename T, typename Score>
__global__ __launch_bounds__(kMinThreads) void redo_rows_kernel(ScoreBlock block, float alpha,
                                                                const Score* scores, RowsOf b_rows,
                                                                const T* b, int heads_per_b_head,
                                                                RowsOf c_rows, T* c) {
  const Row row(block, blockIdx.x * (kMinThreads / kWarp) + threadIdx.x / kWarp);
  if (!row.exists) return;
  const auto statistic = static_cast<uint32_t>(row.statistic);
  const auto q_len = static_cast<uint32_t>(block.q_len);
  const int64_t head = statistic / q_len, query = statistic % q_len;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  T* product = c + c_rows.offset(head, query);
  float spoilt = 0;  // x - x is 0, or else NaN
  for (int column = lane; column < c_rows.head_dim; column += kWarp) {
    const float x = to_float(product[column]);
    spoilt += x - x;
  }
  if (!__any_sync(kAllLanes, spoilt != 0)) return;
  const T* right = b + b_rows.offset(head / heads_per_b_head, 0);
  for (int column = lane; column < c_rows.head_dim; column += kWarp) {
    float sum = 0;
    for (int key = 0; key < row.visible; ++key) {
      sum += to_float(scores[row.at + key]) * to_float(right[key * b_rows.row_stride + column]);
    }
    product[column] = from_float<T>(alpha * sum);
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

template <typename In, typename Out>
void launch_softmax(const ScoreBlock& block, const void* scores, void* probabilities,
                    float* logsumexp, cudaStream_t stream) {
  const int64_t rows = block.heads * block.rows;
  const auto* in = static_cast<const In*>(scores);
  auto* out = static_cast<Out*>(probabilities);
  const int64_t vectors = (block.keys + Packed<Out>::kWidth - 1) / Packed<Out>::kWidth;
  const auto launch = [&]<int kThreads, int kVectors>() {
    if (vectors > kThreads * kVectors) return false;
    constexpr int kBlockThreads = std::max(kThreads, kMinThreads);
    softmax_kernel<In, Out, kThreads, kVectors>
        <<<grid(rows, kBlockThreads / kThreads), kBlockThreads, 0, stream>>>(block, in, out,
                                                                             logsumexp);
    return true;
  };
  const bool fits = launch.template operator()<32, 1>() || launch.template operator()<32, 2>() ||
                    launch.template operator()<32, 4>() || launch.template operator()<128, 2>() ||
                    launch.template operator()<128, 4>() || launch.template operator()<256, 4>() ||
                    launch.template operator()<512, 4>() || launch.template operator()<1024, 4>() ||
                    launch.template operator()<1024, kMostValues / Packed<Out>::kWidth>();
  if (!fits) {
    long_softmax_kernel<In, Out>
        <<<grid(rows, 1), kMaxThreads, 0, stream>>>(block, in, out, logsumexp);
  }
  FLASHBENCH_CUDA(cudaGetLastError());
}

bool aligned(const ConstTensorView& t) {
  const int64_t width = 16 / element_size(t.dtype);
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.batch_stride % width == 0 &&
         t.head_stride % width == 0 && t.row_stride % width == 0 && t.head_dim % width == 0;
}

}  // namespace

ScoreBlock ScoreBlock::whole(const Problem& p) {
  ScoreBlock block;
  block.heads = p.batch * p.q_heads;
  block.row_stride = (p.kv_len + kScoreRowStep - 1) / kScoreRowStep * kScoreRowStep;
  block.head_stride = p.q_len * block.row_stride;
  block.q_len = p.q_len;
  block.rows = p.q_len;
  block.keys = p.kv_len;
  switch (p.mask) {
    case Mask::none:
      block.visible_from = p.kv_len;
      break;
    case Mask::causal_top_left:
      block.visible_from = 1;
      break;
    case Mask::causal_bottom_right:
      block.visible_from = p.kv_len - p.q_len + 1;
      break;
  }
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
  with_type(o.dtype, [&](auto element) {
    using T = decltype(element);
    const auto launch = [&]<int kLanes>() {
      row_dots_kernel<T, kLanes><<<grid(rows * kLanes, kMinThreads), kMinThreads, 0, stream>>>(
          RowsOf(o), static_cast<const T*>(o.data), RowsOf(d_o), static_cast<const T*>(d_o.data),
          rows, aligned(o) && aligned(d_o), delta);
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
  with_types(scores_dtype, c.dtype, [&](auto score, auto element) {
    using Score = decltype(score);
    using T = decltype(element);
    redo_rows_kernel<T, Score>
        <<<grid(block.heads * block.rows * kWarp, kMinThreads), kMinThreads, 0, stream>>>(
            block, static_cast<float>(alpha), static_cast<const Score*>(scores), RowsOf(b),
            static_cast<const T*>(b.data), static_cast<int>(c.heads / b.heads), RowsOf(c),
            static_cast<T*>(c.data));
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
  with_type(to.dtype, [&](auto element) {
    using T = decltype(element);
    from_fp32_kernel<T><<<grid(elements, kMinThreads), kMinThreads, 0, stream>>>(
        from, RowsOf(to), elements, static_cast<T*>(to.data));
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

}  // namespace flashbench::kernels
