// Unless stated otherwise, each kernel below has a thread block of 256 threads for each query row
// of a tile. T is the problem's dtype.
#include <cub/block/block_reduce.cuh>

#include <algorithm>
#include <numeric>

#include "verify/cuda_dtype.h"
#include "verify/cuda_naive.h"
#include "verify/row_blocks.h"

namespace flashbench::verify {

namespace {

constexpr int kThreads = 256;

template <typename Value, typename Operation>
__device__ Value reduce(Value value, Operation operation) {
  using Reduce = cub::BlockReduce<Value, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __syncthreads();  // other threads may still read the previous reduction
  return Reduce(storage).Reduce(value, operation);
}

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

__global__ void reset_sums(int64_t rows, float* max, float* sum, float* d) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= rows) return;
  max[i] = -INFINITY;
  sum[i] = d[i] = 0;
}

// Adds a tile of scores [rows, keys] to each row's maximum and sum of exponentials; `max` and `sum`
// are those of the head's rows.
template <typename T>
__global__ void add_to_sums(const T* scores, RowNumbers queries, const RowRange* visible,
                            int64_t first_key, int64_t keys, float* max, float* sum) {
  const int64_t i = blockIdx.x, query = queries[i];
  const T* row = scores + i * keys;
  const RowRange sees = visible_in_tile(visible[query], first_key, keys);
  const int64_t start = sees.first + threadIdx.x;
  const float old_max = max[query];
  float largest = -INFINITY;
  for (int64_t j = start; j < sees.end; j += kThreads) {
    largest = fmaxf(largest, static_cast<float>(row[j]));
  }
  largest = reduce(largest, Largest{});
  __shared__ float new_max;
  if (threadIdx.x == 0) new_max = fmaxf(old_max, largest);
  __syncthreads();
  float terms = 0;
  for (int64_t j = start; j < sees.end; j += kThreads) {
    terms += expf(static_cast<float>(row[j]) - new_max);
  }
  terms = reduce(terms, Sum{});
  if (threadIdx.x != 0) return;
  max[query] = new_max;
  sum[query] = sum[query] * (old_max == new_max ? 1.0f : expf(old_max - new_max)) + terms;
}

// Turns scores into P, 0 where masked. If products dP are given, also adds the row sums of P dP to
// D.
template <typename T>
__global__ void probabilities(RowNumbers queries, const RowRange* visible, int64_t first_key,
                              int64_t keys, const float* max, const float* sum, T* tile,
                              const T* d_p, float* d) {
  const int64_t i = blockIdx.x, query = queries[i];
  const RowRange sees = visible[query];
  float products = 0;
  for (int64_t j = threadIdx.x; j < keys; j += kThreads) {
    const int64_t at = i * keys + j;
    const bool visible_key = contains(sees, first_key + j);
    const float p =
        visible_key ? expf(static_cast<float>(tile[at]) - max[query]) / sum[query] : 0.0f;
    tile[at] = T(p);
    if (d_p != nullptr && visible_key) {
      products += static_cast<float>(tile[at]) * static_cast<float>(d_p[at]);
    }
  }
  if (d_p == nullptr) return;
  products = reduce(products, Sum{});
  if (threadIdx.x == 0) d[query] += products;
}

// Turns S and dP into P and dS.
template <typename T>
__global__ void gradients(RowNumbers queries, RowNumbers keys, int64_t key_count,
                          const RowRange* visible, const float* max, const float* sum,
                          const float* d, T* p, T* d_s) {
  const int64_t i = blockIdx.x, query = queries[i];
  const RowRange sees = visible[query];
  for (int64_t j = threadIdx.x; j < key_count; j += kThreads) {
    const int64_t at = i * key_count + j;
    const float probability = contains(sees, keys[j]) && sum[query] != 0
                                  ? expf(static_cast<float>(p[at]) - max[query]) / sum[query]
                                  : 0.0f;
    p[at] = T(probability);
    d_s[at] = T(static_cast<float>(p[at]) * (static_cast<float>(d_s[at]) - d[query]));
  }
}

// One thread per row of a block.
__global__ void logsumexps(RowNumbers queries, int64_t rows, const float* max, const float* sum,
                           float* logsumexp) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i < rows) logsumexp[i] = max[queries[i]] + logf(sum[queries[i]]);
}

// The largest difference over elements that are finite in both. Non-negative doubles have the same
// order as their bits.
template <typename T>
__global__ void largest_error(const float* naive, const double* exact, int64_t elements,
                              unsigned long long* largest) {
  double worst = 0;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < elements;
       i += int64_t{kThreads} * gridDim.x) {
    const double error = fabs(static_cast<double>(static_cast<float>(T(naive[i]))) - exact[i]);
    if (isfinite(error)) worst = fmax(worst, error);
  }
  worst = reduce(worst, Largest{});
  if (threadIdx.x == 0) {
    atomicMax(largest, static_cast<unsigned long long>(__double_as_longlong(worst)));
  }
}

unsigned grid(int64_t rows) {
  return static_cast<unsigned>(rows);
}

}  // namespace

GpuError::GpuError(cudaStream_t stream) : stream_(stream), largest_(1) {
  FLASHBENCH_CUDA(cudaMemsetAsync(largest_.data(), 0, sizeof(double), stream));
}

void GpuError::add(Dtype stored, const float* naive, const double* exact, int64_t elements) {
  constexpr unsigned kMostBlocks = 1024;
  with_type(stored, [&](auto zero) {
    largest_error<decltype(zero)>
        <<<std::min(blocks_of_256(elements), kMostBlocks), kThreads, 0, stream_>>>(
            naive, exact, elements, reinterpret_cast<unsigned long long*>(largest_.data()));
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

double GpuError::largest() const {
  double value = 0;
  FLASHBENCH_CUDA(
      cudaMemcpyAsync(&value, largest_.data(), sizeof value, cudaMemcpyDeviceToHost, stream_));
  FLASHBENCH_CUDA(cudaStreamSynchronize(stream_));
  return value;
}

NaiveOnGpu::NaiveOnGpu(const Problem& p, const GpuInputs& inputs, void* first_tile,
                       void* second_tile, const Cublas& cublas, cudaStream_t stream)
    : problem_(p),
      inputs_(inputs),
      first_tile_(first_tile),
      second_tile_(second_tile),
      cublas_(cublas),
      stream_(stream),
      all_rows_(static_cast<size_t>(std::max(p.q_len, p.kv_len))) {
  std::iota(all_rows_.begin(), all_rows_.end(), 0);
  const int64_t own =
      std::min(kMaxOwnRows, std::max(p.q_len, p.kv_len)) * std::max(p.head_dim, p.value_dim());
  own_a_ = GpuArray<std::byte>(own * element_size(p.dtype));
  own_b_ = GpuArray<std::byte>(own * element_size(p.dtype));
  first_sum_ = GpuArray<float>(own);
  second_sum_ = GpuArray<float>(own);
  const int64_t rows = p.pass == Pass::forward ? p.q_len : p.query_rows();
  max_ = GpuArray<float>(rows);
  sum_ = GpuArray<float>(rows);
  d_ = GpuArray<float>(rows);
}

NaiveOnGpu::Sums NaiveOnGpu::sums_of(const GpuRows& queries) const {
  const auto first =
      problem_.pass == Pass::forward
          ? 0
          : static_cast<int64_t>(query_index(problem_, queries.batch, queries.head, 0));
  return {max_.data() + first, sum_.data() + first, d_.data() + first};
}

DeviceMatrix NaiveOnGpu::dense(const void* data, int64_t columns) const {
  return {data, problem_.dtype, columns};
}

DeviceMatrix NaiveOnGpu::rows_of(const GpuTensor& tensor, int64_t batch, int64_t head,
                                 int64_t first) const {
  const ConstTensorView& view = tensor.view();
  return {static_cast<const std::byte*>(view.data) +
              view.offset(batch, head, first) * element_size(view.dtype),
          view.dtype, view.row_stride};
}

void NaiveOnGpu::multiply(bool transpose_a, bool transpose_b, int64_t rows, int64_t columns,
                          int64_t depth, double alpha, const DeviceMatrix& a, const DeviceMatrix& b,
                          double beta, const DeviceMatrix& c) const {
  cublas_.multiply_strided({.transpose_a = transpose_a,
                            .transpose_b = transpose_b,
                            .rows = rows,
                            .columns = columns,
                            .depth = depth,
                            .alpha = alpha,
                            .beta = beta,
                            .a = a,
                            .b = b,
                            .c = c},
                           1, 0, 0, 0);
}

void NaiveOnGpu::clear(float* values, int64_t count) const {
  FLASHBENCH_CUDA(cudaMemsetAsync(values, 0, static_cast<size_t>(count) * sizeof(float), stream_));
}

// Makes two passes over the keys: one for the rows' sums, one for P and the sum of P V or, for the
// backward pass, D.
void NaiveOnGpu::softmax(const GpuRows& queries, bool for_gradients) {
  const int64_t d = problem_.head_dim, d_v = problem_.value_dim(), batch = queries.batch;
  const int64_t kv_head = queries.head / problem_.heads_per_kv_head();
  const Problem request = problem_.request(batch);
  const RowRange seen = seen_keys(request, queries);
  const auto element = static_cast<size_t>(element_size(problem_.dtype));
  pack(inputs_.q, queries, own_a_.data(), stream_);
  if (for_gradients) pack(inputs_.d_o, queries, own_b_.data(), stream_);
  const Sums sums = sums_of(queries);
  const int64_t tile = tile_rows(queries.count(), std::max<int64_t>(seen.size(), 1));
  for (const bool first_pass : {true, false}) {
    for (int64_t first = seen.first; first < seen.end; first += tile) {
      const int64_t count = std::min(tile, seen.end - first);
      const RowRange places = places_that_see(request, queries, {first, first + count});
      if (places.empty()) continue;
      const GpuRows seeing = queries.part(places);
      const int64_t skip = places.first;
      const auto q_offset = static_cast<size_t>(skip * d) * element;
      const auto d_o_offset = static_cast<size_t>(skip * d_v) * element;
      multiply(false, true, seeing.count(), count, d, problem_.softmax_scale(),
               dense(own_a_.data() + q_offset, d), rows_of(inputs_.k, batch, kv_head, first), 0,
               dense(first_tile_, count));
      if (!first_pass && for_gradients) {
        multiply(false, true, seeing.count(), count, d_v, 1, dense(own_b_.data() + d_o_offset, d_v),
                 rows_of(inputs_.v, batch, kv_head, first), 0, dense(second_tile_, count));
      }
      with_type(problem_.dtype, [&](auto zero) {
        using T = decltype(zero);
        auto* scores = static_cast<T*>(first_tile_);
        if (first_pass) {
          add_to_sums<<<grid(seeing.count()), kThreads, 0, stream_>>>(
              scores, seeing.numbers, inputs_.visible_in(queries.batch), first, count, sums.max,
              sums.sum);
        } else {
          probabilities<<<grid(seeing.count()), kThreads, 0, stream_>>>(
              seeing.numbers, inputs_.visible_in(queries.batch), first, count, sums.max, sums.sum,
              scores, for_gradients ? static_cast<const T*>(second_tile_) : nullptr, sums.d);
        }
      });
      FLASHBENCH_CUDA(cudaGetLastError());
      if (!first_pass && !for_gradients) {
        multiply(false, false, seeing.count(), d_v, count, 1, dense(first_tile_, count),
                 rows_of(inputs_.v, batch, kv_head, first), 1,
                 {first_sum_.data() + skip * d_v, Dtype::fp32, d_v});
      }
    }
  }
}

void NaiveOnGpu::forward(const GpuRows& queries, const double* exact_o,
                         const double* exact_logsumexp, GpuError& o, GpuError& logsumexp) {
  const Sums sums = sums_of(queries);
  reset_sums<<<blocks_of_256(problem_.q_len), kThreads, 0, stream_>>>(problem_.q_len, sums.max,
                                                                      sums.sum, sums.d);
  clear(first_sum_.data(), queries.count() * problem_.value_dim());
  softmax(queries, false);
  o.add(problem_.dtype, first_sum_.data(), exact_o, queries.count() * problem_.value_dim());
  logsumexps<<<blocks_of_256(queries.count()), kThreads, 0, stream_>>>(
      queries.numbers, queries.count(), sums.max, sums.sum, second_sum_.data());
  FLASHBENCH_CUDA(cudaGetLastError());
  logsumexp.add(Dtype::fp32, second_sum_.data(), exact_logsumexp, queries.count());
}

void NaiveOnGpu::statistics(const GpuRows& queries) {
  const Sums sums = sums_of(queries);
  const int64_t first = queries.rows.front();
  reset_sums<<<blocks_of_256(queries.count()), kThreads, 0, stream_>>>(
      queries.count(), sums.max + first, sums.sum + first, sums.d + first);
  FLASHBENCH_CUDA(cudaGetLastError());
  softmax(queries, true);
}

void NaiveOnGpu::tile(const GpuRows& queries, const DeviceMatrix& q, const DeviceMatrix& d_o,
                      const GpuRows& keys, const DeviceMatrix& k, const DeviceMatrix& v) {
  const int64_t d = problem_.head_dim, d_v = problem_.value_dim();
  multiply(false, true, queries.count(), keys.count(), d, problem_.softmax_scale(), q, k, 0,
           dense(first_tile_, keys.count()));
  multiply(false, true, queries.count(), keys.count(), d_v, 1, d_o, v, 0,
           dense(second_tile_, keys.count()));
  const Sums sums = sums_of(queries);
  with_type(problem_.dtype, [&](auto zero) {
    using T = decltype(zero);
    gradients<<<grid(queries.count()), kThreads, 0, stream_>>>(
        queries.numbers, keys.numbers, keys.count(), inputs_.visible_in(queries.batch), sums.max,
        sums.sum, sums.d, static_cast<T*>(first_tile_), static_cast<T*>(second_tile_));
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

void NaiveOnGpu::query_gradients(const GpuRows& queries, const double* exact, GpuError& dq) {
  const int64_t d = problem_.head_dim, d_v = problem_.value_dim(), batch = queries.batch;
  const int64_t kv_head = queries.head / problem_.heads_per_kv_head();
  const Problem request = problem_.request(batch);
  const RowRange seen = seen_keys(request, queries);
  const auto element = static_cast<size_t>(element_size(problem_.dtype));
  pack(inputs_.q, queries, own_a_.data(), stream_);
  pack(inputs_.d_o, queries, own_b_.data(), stream_);
  clear(first_sum_.data(), queries.count() * d);
  const int64_t length = tile_rows(queries.count(), std::max<int64_t>(seen.size(), 1));
  for (int64_t first = seen.first; first < seen.end; first += length) {
    const int64_t count = std::min(length, seen.end - first);
    const RowRange places = places_that_see(request, queries, {first, first + count});
    if (places.empty()) continue;
    const GpuRows keys{
        batch,
        kv_head,
        std::span(all_rows_).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
        {nullptr, first}};
    const GpuRows seeing = queries.part(places);
    const int64_t skip = places.first;
    const auto q_offset = static_cast<size_t>(skip * d) * element;
    const auto d_o_offset = static_cast<size_t>(skip * d_v) * element;
    const DeviceMatrix k = rows_of(inputs_.k, batch, kv_head, first);
    tile(seeing, dense(own_a_.data() + q_offset, d), dense(own_b_.data() + d_o_offset, d_v), keys,
         k, rows_of(inputs_.v, batch, kv_head, first));
    multiply(false, false, seeing.count(), d, count, problem_.softmax_scale(),
             dense(second_tile_, count), k, 1, {first_sum_.data() + skip * d, Dtype::fp32, d});
  }
  dq.add(problem_.dtype, first_sum_.data(), exact, queries.count() * d);
}

void NaiveOnGpu::key_gradients(const GpuRows& keys, const double* exact_dk, const double* exact_dv,
                               GpuError& dk, GpuError& dv) {
  const int64_t d = problem_.head_dim, d_v = problem_.value_dim(), batch = keys.batch;
  pack(inputs_.k, keys, own_a_.data(), stream_);
  pack(inputs_.v, keys, own_b_.data(), stream_);
  clear(first_sum_.data(), keys.count() * d);
  clear(second_sum_.data(), keys.count() * d_v);
  const Problem request = problem_.request(batch);
  const int64_t length = tile_rows(keys.count(), request.q_len);
  for (int64_t i = 0; i < problem_.heads_per_kv_head(); ++i) {
    const int64_t head = keys.head * problem_.heads_per_kv_head() + i;
    for (int64_t first = 0; first < request.q_len; first += length) {
      const int64_t count = std::min(length, request.q_len - first);
      const GpuRows queries{
          batch,
          head,
          std::span(all_rows_).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
          {nullptr, first}};
      const RowRange places = places_within(keys, seen_keys(request, queries));
      if (places.empty()) continue;
      const int64_t seen = places.size(), skip = places.first;
      const auto k_offset = static_cast<size_t>(skip * d * element_size(problem_.dtype));
      const auto v_offset = static_cast<size_t>(skip * d_v * element_size(problem_.dtype));
      const DeviceMatrix q = rows_of(inputs_.q, batch, head, first);
      const DeviceMatrix d_o = rows_of(inputs_.d_o, batch, head, first);
      tile(queries, q, d_o, keys.part(places), dense(own_a_.data() + k_offset, d),
           dense(own_b_.data() + v_offset, d_v));
      multiply(true, false, seen, d, count, problem_.softmax_scale(), dense(second_tile_, seen), q,
               1, {first_sum_.data() + skip * d, Dtype::fp32, d});
      multiply(true, false, seen, d_v, count, 1, dense(first_tile_, seen), d_o, 1,
               {second_sum_.data() + skip * d_v, Dtype::fp32, d_v});
    }
  }
  dk.add(problem_.dtype, first_sum_.data(), exact_dk, keys.count() * d);
  dv.add(problem_.dtype, second_sum_.data(), exact_dv, keys.count() * d_v);
}

}  // namespace flashbench::verify
