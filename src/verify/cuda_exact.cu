// Unless stated otherwise, each kernel below has a thread block of 256 threads for each query row
// of a tile. Matrices are dense and row-major.
#include <cub/block/block_reduce.cuh>

#include <algorithm>
#include <numeric>

#include "verify/cuda_exact.h"
#include "verify/rounding.h"
#include "verify/row_blocks.h"

namespace flashbench::verify {

namespace {

constexpr int kThreads = 256;

// ---- pieces of the formulas

// The properties of a problem that the formulas need.
struct Terms {
  double scale;
  int64_t head_dim, value_dim;
  Rounding rounding;
  double d_s_floor;
  StoredScores stored;
  double partials;
};

__device__ double squared(double x) {
  return x * x;
}

__device__ double sum_variance(int64_t terms) {
  return static_cast<double>(terms) * squared(kFp32Roundoff);
}

__device__ double error_of_storing(const Rounding& rounding, double value) {
  return fmax(rounding.roundoff * fabs(value), rounding.flush);
}

__device__ double stored_variance(const StoredScores& stored, double value) {
  return stored.rounded ? squared(error_of_storing(stored.rounding, value)) : 0;
}

__device__ double common_error(double logsumexp) {
  return 2 * kFp32Roundoff * fabs(logsumexp);
}

struct Largest {
  __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

// Reduces over the thread block; thread 0 gets the result.
template <typename Operation>
__device__ double reduce(double value, Operation operation) {
  using Reduce = cub::BlockReduce<double, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __syncthreads();  // other threads may still read the previous reduction
  return Reduce(storage).Reduce(value, operation);
}

__device__ double sum_over_block(double value) {
  return reduce(value, [](double a, double b) { return a + b; });
}

// An element of the softmax before division by the sum. Scores that are all -inf count as masked;
// NaN and +inf make the element or the sum NaN.
__device__ double exponential(double score, double max) {
  return max == -INFINITY && !isnan(score) ? 0.0 : exp(score - max);
}

// ---- forward

__global__ void reset_row_sums(int64_t rows, double* max, double* sum, double* score_variance,
                               double* swallowed) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= rows) return;
  max[i] = -INFINITY;
  sum[i] = score_variance[i] = swallowed[i] = 0;
}

// Adds a tile of scores [rows, keys] to each row's maximum and sum of exponentials.
__global__ void add_to_row_sums(const double* scores, RowNumbers queries, const RowRange* visible,
                                int64_t first_key, int64_t keys, double* max, double* sum) {
  const int64_t i = blockIdx.x;
  const double* row = scores + i * keys;
  const RowRange sees = visible_in_tile(visible[queries[i]], first_key, keys);
  const int64_t start = sees.first + threadIdx.x;
  const double old_max = max[i];
  double largest = -INFINITY;
  for (int64_t j = start; j < sees.end; j += kThreads) largest = fmax(largest, row[j]);
  largest = reduce(largest, Largest{});
  __shared__ double new_max;
  if (threadIdx.x == 0) new_max = fmax(old_max, largest);
  __syncthreads();
  double terms = 0;
  for (int64_t j = start; j < sees.end; j += kThreads) terms += exponential(row[j], new_max);
  terms = sum_over_block(terms);
  if (threadIdx.x != 0) return;
  max[i] = new_max;
  sum[i] = sum[i] * (old_max == new_max ? 1.0 : exp(old_max - new_max)) + terms;
}

// Turns scores into P, 0 where masked. If there is room for them, also writes the variance of each
// element and adds to the row's errors.
__global__ void probabilities(Terms terms, RowNumbers queries, const RowRange* visible,
                              int64_t first_key, int64_t keys, const double* q_norms,
                              const double* k_norms, const double* max, const double* sum,
                              double* tile, double* variance, double* score_variance,
                              double* swallowed) {
  const int64_t i = blockIdx.x;
  const RowRange sees = visible[queries[i]];
  const double row_max = max[i], row_sum = sum[i];
  const double floor = squared(terms.rounding.intermediate_floor);
  const double relative =
      squared(terms.rounding.intermediate) + terms.partials + sum_variance(size_of(sees));
  const double step = sum_variance(terms.head_dim) * squared(terms.scale) * q_norms[i];
  double from_scores = 0, lost = 0;
  for (int64_t j = threadIdx.x; j < keys; j += kThreads) {
    double p = 0, p_variance = 0;
    if (contains(sees, first_key + j)) {
      const double score = tile[i * keys + j];
      p = row_sum == 0 ? 0 : exponential(score, row_max) / row_sum;
      p_variance = floor;
      if (variance != nullptr && p != 0) {
        const double from_score =
            squared(p) * (step * k_norms[j] + stored_variance(terms.stored, score));
        p_variance += squared(p) * relative + from_score;
        from_scores += from_score;
        lost += p < 2 * kFp32Roundoff ? p : 0;
      }
    }
    tile[i * keys + j] = p;
    if (variance != nullptr) variance[i * keys + j] = p_variance;
  }
  if (variance == nullptr) return;
  from_scores = sum_over_block(from_scores);
  lost = sum_over_block(lost);
  if (threadIdx.x != 0) return;
  score_variance[i] += from_scores;
  swallowed[i] += lost;
}

// One thread per element of O.
__global__ void finish_forward(double partials, RowNumbers queries, int64_t rows, int64_t columns,
                               const RowRange* visible, const double* max, const double* sum,
                               const double* score_variance, const double* swallowed,
                               const double* variance, const double* o, float* o_bound,
                               double* logsumexp, float* logsumexp_bound) {
  const int64_t element = blockIdx.x * int64_t{kThreads} + threadIdx.x, i = element / columns;
  if (i >= rows) return;
  const double sum_error = sqrt(sum_variance(size_of(visible[queries[i]]))) + swallowed[i];
  o_bound[element] = static_cast<float>(
      sqrt(variance[element] + squared(o[element]) * (score_variance[i] + partials)) +
      sum_error * fabs(o[element]));
  if (element % columns != 0) return;
  logsumexp[i] = sum[i] == 0 ? -INFINITY : max[i] + log(sum[i]);
  logsumexp_bound[i] = static_cast<float>(sum_error + sqrt(score_variance[i]) +
                                          kFp32Roundoff * (4 + 2 * fabs(logsumexp[i])));
}

// ---- backward

// One thread per row; `first` is the first row in the statistics.
__global__ void row_statistics(Terms terms, int64_t rows, const double* o, const double* d_o,
                               const double* logsumexp, double* all_logsumexp, double* all_d,
                               double* all_d_variance) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= rows) return;
  double d = 0, variance = 0, magnitude = 0;
  for (int64_t column = 0; column < terms.value_dim; ++column) {
    const double from = d_o[i * terms.value_dim + column], to = o[i * terms.value_dim + column];
    d += from * to;
    variance += squared(from * error_of_storing(terms.rounding, to));
    magnitude += squared(from * to);
  }
  all_logsumexp[i] = logsumexp[i];
  all_d[i] = d;
  all_d_variance[i] = variance + sum_variance(terms.value_dim) * magnitude;
}

// The rows of GpuStatistics of one head.
struct HeadStatistics {
  const double *logsumexp, *d, *d_variance;
};

struct GradientTile {
  RowNumbers queries, keys;
  int64_t key_count;
  const RowRange* visible;
  HeadStatistics statistics;
  const double *q_norms, *d_o_norms, *k_norms, *v_norms;
  int64_t query_terms;  // number of terms in sums over queries; 0 for sums over keys: as many as
                        // the row sees
  double *p, *d_s;      // in: S and dP; out: P and dS, 0 where masked
  double *p_variance, *d_s_variance;  // out; p_variance for sums over queries only
};

__global__ void gradients(Terms terms, GradientTile t) {
  const int64_t i = blockIdx.x, query = t.queries[i];
  const RowRange sees = t.visible[query];
  const double logsumexp = t.statistics.logsumexp[query], d = t.statistics.d[query];
  const bool over_queries = t.query_terms != 0;
  const double p_floor = squared(terms.rounding.intermediate_floor);
  const double own = squared(terms.rounding.intermediate) +
                     sum_variance(over_queries ? t.query_terms : size_of(sees));
  const double score_step = sum_variance(terms.head_dim) * squared(terms.scale) * t.q_norms[i];
  const double d_p_step = sum_variance(terms.value_dim) * t.d_o_norms[i];
  // In a sum over queries, errors common to a row count as independent.
  const double common = over_queries ? squared(common_error(logsumexp)) : 0;
  const double d_variance = over_queries ? t.statistics.d_variance[query] : 0;
  for (int64_t j = threadIdx.x; j < t.key_count; j += kThreads) {
    const int64_t at = i * t.key_count + j;
    double p = 0, d_s = 0, p_variance = 0, d_s_variance = 0;
    if (logsumexp != -INFINITY && contains(sees, t.keys[j])) {
      const double score = t.p[at], d_p = t.d_s[at], centred = d_p - d;
      p = exp(score - logsumexp);
      d_s = p * centred;
      p_variance = p_floor;
      d_s_variance = squared(terms.d_s_floor);
      if (p != 0) {  // a score of -inf has no error, and its key may not be finite
        const double relative =
            own + score_step * t.k_norms[j] + stored_variance(terms.stored, score) + common;
        p_variance += squared(p) * relative;
        d_s_variance += squared(d_s) * relative + p_floor * squared(centred) +
                        squared(p) * (d_p_step * t.v_norms[j] + stored_variance(terms.stored, d_p) +
                                      d_variance);
      }
    }
    t.p[at] = p;
    t.d_s[at] = d_s;
    if (over_queries) t.p_variance[at] = p_variance;
    t.d_s_variance[at] = d_s_variance;
  }
}

// One thread per element of dQ, which holds the sum over keys.
__global__ void finish_query_gradients(Terms terms, RowNumbers queries, int64_t rows,
                                       const RowRange* visible, HeadStatistics statistics,
                                       const double* variance, const double* mean_key, double* dq,
                                       float* dq_bound) {
  const int64_t element = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  const int64_t i = element / terms.head_dim;
  if (i >= rows) return;
  const int64_t query = queries[i];
  const double value = terms.scale * dq[element];
  dq[element] = value;
  dq_bound[element] = static_cast<float>(
      fabs(terms.scale) *
          (sqrt(variance[element]) + sqrt(statistics.d_variance[query]) * fabs(mean_key[element])) +
      (sqrt(sum_variance(size_of(visible[query]))) + common_error(statistics.logsumexp[query])) *
          fabs(value));
}

// One thread per element of dK or dV, which holds the sum of `terms` pairs.
__global__ void finish_key_gradients(int64_t elements, double factor, int64_t terms,
                                     const double* variance, double* sum, float* bound) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= elements) return;
  bound[i] = static_cast<float>(fabs(factor) *
                                (sqrt(variance[i]) + sqrt(sum_variance(terms)) * fabs(sum[i])));
  sum[i] *= factor;
}

// ---- sums without a matrix product, which would let masked Inf and NaN through

// sum += weights rows, over visible pairs only; one thread per element of the sum. In a matrix
// product 0 * Inf of a masked pair would be NaN. See accumulate() in matrix.h.
__global__ void accumulate_visible(bool over_queries, const double* weights, RowNumbers queries,
                                   int64_t query_count, RowNumbers keys, int64_t key_count,
                                   const RowRange* visible, const double* rows, int64_t columns,
                                   double* sum) {
  const int64_t element = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  const int64_t own = element / columns, column = element % columns;
  if (own >= (over_queries ? key_count : query_count)) return;
  double total = sum[element];
  for (int64_t other = 0; other < (over_queries ? query_count : key_count); ++other) {
    const int64_t query = over_queries ? other : own, key = over_queries ? own : other;
    if (!contains(visible[queries[query]], keys[key])) continue;
    total += weights[query * key_count + key] * rows[other * columns + column];
  }
  sum[element] = total;
}

Terms terms_of(const Problem& p, const Storage& storage) {
  const Rounding rounding = rounding_of(p.dtype);
  return {p.softmax_scale(),
          p.head_dim,
          p.value_dim(),
          rounding,
          d_s_floor(rounding, p.softmax_scale()),
          stored_scores(storage.scores),
          partials_variance(storage.partials)};
}

HeadStatistics head_of(const GpuStatistics& all, const Problem& p, const GpuRows& queries) {
  const auto first = static_cast<int64_t>(query_index(p, queries.batch, queries.head, 0));
  return {all.logsumexp.data() + first, all.d.data() + first, all.d_variance.data() + first};
}

unsigned grid(int64_t rows) {
  return static_cast<unsigned>(rows);
}

int64_t own_rows(int64_t length) {
  return std::min(length, kMaxOwnRows);
}

}  // namespace

ExactOnGpu::ExactOnGpu(const Problem& p, const Storage& storage, const GpuInputs& inputs,
                       const Cublas& cublas, cudaStream_t stream)
    : problem_(p),
      storage_(storage),
      inputs_(inputs),
      cublas_(cublas),
      stream_(stream),
      all_rows_(static_cast<size_t>(std::max(p.q_len, p.kv_len))),
      own_a_(own_rows(std::max(p.q_len, p.kv_len)), p.head_dim),
      own_b_(own_rows(std::max(p.q_len, p.kv_len)), p.value_dim()),
      tile_a_(own_rows(std::max(p.q_len, p.kv_len)), p.head_dim),
      tile_b_(own_rows(std::max(p.q_len, p.kv_len)), p.value_dim()),
      row_max_(own_rows(p.q_len)),
      row_sum_(own_rows(p.q_len)),
      score_variance_(own_rows(p.q_len)),
      swallowed_(own_rows(p.q_len)),
      variance_(own_rows(std::max(p.q_len, p.kv_len)) * std::max(p.head_dim, p.value_dim())),
      second_variance_(own_rows(p.kv_len) * p.value_dim()),
      mean_key_(own_rows(p.q_len) * p.head_dim) {
  std::iota(all_rows_.begin(), all_rows_.end(), 0);
  const int64_t elements = std::min(kMaxTileElements, own_rows(p.q_len) * own_rows(p.kv_len));
  for (int i = 0; i < (p.pass == Pass::forward ? 2 : 4); ++i) tiles_.emplace_back(elements);
}

// c [rows, columns] = alpha * op(a) op(b) + beta * c, all dense and row-major. cuBLAS is
// column-major and sees a row-major matrix as its transpose: c^T = op(b)^T op(a)^T.
void ExactOnGpu::multiply(bool transpose_a, bool transpose_b, int64_t rows, int64_t columns,
                          int64_t depth, double alpha, const double* a, const double* b,
                          double beta, double* c) const {
  const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  FLASHBENCH_CUBLAS(cublas_library().dgemm(
      cublas_.handle(), operation(transpose_b), operation(transpose_a), static_cast<int>(columns),
      static_cast<int>(rows), static_cast<int>(depth), &alpha, b,
      static_cast<int>(transpose_b ? depth : columns), a,
      static_cast<int>(transpose_a ? rows : depth), &beta, c, static_cast<int>(columns)));
}

void ExactOnGpu::accumulate(bool over_queries, const double* weights, const GpuRows& queries,
                            const GpuRows& keys, const double* rows, int64_t columns, bool finite,
                            double* sum) {
  const int64_t own = over_queries ? keys.count() : queries.count();
  if (finite) {
    multiply(over_queries, false, own, columns, over_queries ? queries.count() : keys.count(), 1,
             weights, rows, 1, sum);
    return;
  }
  accumulate_visible<<<blocks_of_256(own * columns), kThreads, 0, stream_>>>(
      over_queries, weights, queries.numbers, queries.count(), keys.numbers, keys.count(),
      inputs_.visible_in(queries.batch), rows, columns, sum);
  FLASHBENCH_CUDA(cudaGetLastError());
}

GpuRows ExactOnGpu::keys_of(const GpuRows& queries, int64_t first, int64_t count) const {
  return {queries.batch,
          queries.head / problem_.heads_per_kv_head(),
          std::span(all_rows_).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
          {nullptr, first}};
}

void ExactOnGpu::clear(double* values, int64_t count) const {
  FLASHBENCH_CUDA(cudaMemsetAsync(values, 0, static_cast<size_t>(count) * sizeof(double), stream_));
}

// Calls visit(keys, seeing, skip) for each tile of the keys that any of the queries sees: `seeing`
// are those that see any key of the tile, the first of them number `skip` of the queries.
template <typename Visit>
void ExactOnGpu::for_tiles_of_keys(const GpuRows& queries, const Visit& visit) const {
  const Problem request = problem_.request(queries.batch);
  const RowRange seen = seen_keys(request, queries);
  const int64_t tile = tile_rows(queries.count(), std::max<int64_t>(seen.size(), 1));
  for (int64_t first = seen.first; first < seen.end; first += tile) {
    const GpuRows keys = keys_of(queries, first, std::min(tile, seen.end - first));
    const RowRange places = places_that_see(request, queries, {first, first + keys.count()});
    if (!places.empty()) visit(keys, queries.part(places), places.first);
  }
}

// Makes two passes over the keys: one for the rows' sums, one for P and the sums weighted by P.
void ExactOnGpu::forward(const GpuRows& queries, bool bounds, GpuValues& o, GpuValues& logsumexp) {
  const int64_t d = problem_.head_dim, d_v = problem_.value_dim();
  const int64_t elements = queries.count() * d_v;
  double* scores = tiles_[0].data();
  double* p_variance = bounds ? tiles_[1].data() : nullptr;
  widen(inputs_.q, queries, own_a_, stream_);
  reset_row_sums<<<blocks_of_256(queries.count()), kThreads, 0, stream_>>>(
      queries.count(), row_max_.data(), row_sum_.data(), score_variance_.data(), swallowed_.data());
  clear(o.value.data(), elements);
  clear(variance_.data(), elements);
  for (const bool sums : {true, false}) {
    for_tiles_of_keys(queries, [&](const GpuRows& keys, const GpuRows& seeing, int64_t skip) {
      widen(inputs_.k, keys, tile_a_, stream_);
      multiply(false, true, seeing.count(), keys.count(), d, problem_.softmax_scale(),
               own_a_.values.data() + skip * d, tile_a_.values.data(), 0, scores);
      if (sums) {
        add_to_row_sums<<<grid(seeing.count()), kThreads, 0, stream_>>>(
            scores, seeing.numbers, inputs_.visible_in(queries.batch), keys.rows.front(),
            keys.count(), row_max_.data() + skip, row_sum_.data() + skip);
        return;
      }
      probabilities<<<grid(seeing.count()), kThreads, 0, stream_>>>(
          terms_of(problem_, storage_), seeing.numbers, inputs_.visible_in(queries.batch),
          keys.rows.front(), keys.count(), own_a_.norms.data() + skip, tile_a_.norms.data(),
          row_max_.data() + skip, row_sum_.data() + skip, scores, p_variance,
          score_variance_.data() + skip, swallowed_.data() + skip);
      widen(inputs_.v, keys, tile_b_, stream_);
      accumulate(false, scores, seeing, keys, tile_b_.values.data(), d_v, tile_b_.finite,
                 o.value.data() + skip * d_v);
      if (!bounds) return;
      accumulate(false, p_variance, seeing, keys, tile_b_.squares.data(), d_v, tile_b_.finite,
                 variance_.data() + skip * d_v);
    });
  }
  finish_forward<<<blocks_of_256(elements), kThreads, 0, stream_>>>(
      partials_variance(storage_.partials), queries.numbers, queries.count(), d_v,
      inputs_.visible_in(queries.batch), row_max_.data(), row_sum_.data(), score_variance_.data(),
      swallowed_.data(), variance_.data(), o.value.data(), o.bound.data(), logsumexp.value.data(),
      logsumexp.bound.data());
  FLASHBENCH_CUDA(cudaGetLastError());
}

void ExactOnGpu::statistics(const GpuRows& queries, const double* o, const double* logsumexp,
                            GpuStatistics& all) {
  widen(inputs_.d_o, queries, own_b_, stream_);
  const auto first = static_cast<int64_t>(
      query_index(problem_, queries.batch, queries.head, queries.rows.front()));
  row_statistics<<<blocks_of_256(queries.count()), kThreads, 0, stream_>>>(
      terms_of(problem_, storage_), queries.count(), o, own_b_.values.data(), logsumexp,
      all.logsumexp.data() + first, all.d.data() + first, all.d_variance.data() + first);
  FLASHBENCH_CUDA(cudaGetLastError());
}

// Computes P and dS of the rows of `q` and `d_o` from `first_query` on and the rows of `k` and `v`
// from `first_key` on; `queries` and `keys` have their row numbers.
void ExactOnGpu::gradient_tile(const GpuRows& queries, int64_t first_query, const WideRows& q,
                               const WideRows& d_o, const GpuRows& keys, int64_t first_key,
                               const WideRows& k, const WideRows& v,
                               const GpuStatistics& statistics, bool over_queries) {
  const int64_t d = problem_.head_dim, d_v = problem_.value_dim();
  multiply(false, true, queries.count(), keys.count(), d, problem_.softmax_scale(),
           q.values.data() + first_query * d, k.values.data() + first_key * d, 0, tiles_[0].data());
  multiply(false, true, queries.count(), keys.count(), d_v, 1,
           d_o.values.data() + first_query * d_v, v.values.data() + first_key * d_v, 0,
           tiles_[1].data());
  const GradientTile tile{
      queries.numbers,
      keys.numbers,
      keys.count(),
      inputs_.visible_in(queries.batch),
      head_of(statistics, problem_, queries),
      q.norms.data() + first_query,
      d_o.norms.data() + first_query,
      k.norms.data() + first_key,
      v.norms.data() + first_key,
      over_queries ? problem_.heads_per_kv_head() * problem_.q_len_of(queries.batch) : 0,
      tiles_[0].data(),
      tiles_[1].data(),
      tiles_[2].data(),
      tiles_[3].data()};
  gradients<<<grid(queries.count()), kThreads, 0, stream_>>>(terms_of(problem_, storage_), tile);
  FLASHBENCH_CUDA(cudaGetLastError());
}

void ExactOnGpu::query_gradients(const GpuRows& queries, const GpuStatistics& statistics,
                                 GpuValues& dq) {
  const int64_t d = problem_.head_dim, elements = queries.count() * d;
  widen(inputs_.q, queries, own_a_, stream_);
  widen(inputs_.d_o, queries, own_b_, stream_);
  for (double* sum : {dq.value.data(), variance_.data(), mean_key_.data()}) clear(sum, elements);
  for_tiles_of_keys(queries, [&](const GpuRows& keys, const GpuRows& seeing, int64_t skip) {
    widen(inputs_.k, keys, tile_a_, stream_);
    widen(inputs_.v, keys, tile_b_, stream_);
    gradient_tile(seeing, skip, own_a_, own_b_, keys, 0, tile_a_, tile_b_, statistics, false);
    const auto add = [&](size_t weights, const double* rows, double* sum) {
      accumulate(false, tiles_[weights].data(), seeing, keys, rows, d, tile_a_.finite,
                 sum + skip * d);
    };
    add(1, tile_a_.values.data(), dq.value.data());
    add(0, tile_a_.values.data(), mean_key_.data());
    add(3, tile_a_.squares.data(), variance_.data());
  });
  finish_query_gradients<<<blocks_of_256(elements), kThreads, 0, stream_>>>(
      terms_of(problem_, storage_), queries.numbers, queries.count(),
      inputs_.visible_in(queries.batch), head_of(statistics, problem_, queries), variance_.data(),
      mean_key_.data(), dq.value.data(), dq.bound.data());
  FLASHBENCH_CUDA(cudaGetLastError());
}

void ExactOnGpu::key_gradients(const GpuRows& keys, const GpuStatistics& statistics, GpuValues& dk,
                               GpuValues& dv) {
  const int64_t d = problem_.head_dim, d_v = problem_.value_dim();
  const int64_t dk_elements = keys.count() * d, dv_elements = keys.count() * d_v;
  widen(inputs_.k, keys, own_a_, stream_);
  widen(inputs_.v, keys, own_b_, stream_);
  for (double* sum : {dk.value.data(), variance_.data()}) clear(sum, dk_elements);
  for (double* sum : {dv.value.data(), second_variance_.data()}) clear(sum, dv_elements);
  const Problem request = problem_.request(keys.batch);
  const int64_t tile = tile_rows(keys.count(), request.q_len);
  for (int64_t i = 0; i < problem_.heads_per_kv_head(); ++i) {
    for (int64_t first = 0; first < request.q_len; first += tile) {
      const int64_t count = std::min(tile, request.q_len - first);
      const GpuRows queries{
          keys.batch,
          keys.head * problem_.heads_per_kv_head() + i,
          std::span(all_rows_).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
          {nullptr, first}};
      const RowRange places = places_within(keys, seen_keys(request, queries));
      if (places.empty()) continue;
      const GpuRows visible = keys.part(places);
      const int64_t skip = places.first;
      widen(inputs_.q, queries, tile_a_, stream_);
      widen(inputs_.d_o, queries, tile_b_, stream_);
      gradient_tile(queries, 0, tile_a_, tile_b_, visible, skip, own_a_, own_b_, statistics, true);
      const auto add = [&](size_t weights, const WideRows& rows, const double* values,
                           int64_t columns, double* sum) {
        accumulate(true, tiles_[weights].data(), queries, visible, values, columns, rows.finite,
                   sum + skip * columns);
      };
      add(0, tile_b_, tile_b_.values.data(), d_v, dv.value.data());
      add(1, tile_a_, tile_a_.values.data(), d, dk.value.data());
      add(2, tile_b_, tile_b_.squares.data(), d_v, second_variance_.data());
      add(3, tile_a_, tile_a_.squares.data(), d, variance_.data());
    }
  }
  const int64_t terms = problem_.heads_per_kv_head() * request.q_len;
  finish_key_gradients<<<blocks_of_256(dk_elements), kThreads, 0, stream_>>>(
      dk_elements, problem_.softmax_scale(), terms, variance_.data(), dk.value.data(),
      dk.bound.data());
  finish_key_gradients<<<blocks_of_256(dv_elements), kThreads, 0, stream_>>>(
      dv_elements, 1, terms, second_variance_.data(), dv.value.data(), dv.bound.data());
  FLASHBENCH_CUDA(cudaGetLastError());
}

}  // namespace flashbench::verify
