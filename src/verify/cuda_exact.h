// Attention and its gradients in fp64 on a GPU, with their error bounds: the formulas of exact.h,
// with larger tiles.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "device/cublas.h"
#include "verify/cuda_rows.h"
#include "verify/storage.h"

namespace flashbench::verify {

// Exact values and error bounds of a block of rows [rows, columns], in device memory.
struct GpuValues {
  GpuValues(int64_t rows, int64_t columns) : value(rows * columns), bound(rows * columns) {}

  GpuArray<double> value;
  GpuArray<float> bound;
};

// The RowStatistics of all query rows, at Problem::query_index.
struct GpuStatistics {
  explicit GpuStatistics(int64_t rows) : logsumexp(rows), d(rows), d_variance(rows) {}

  GpuArray<double> logsumexp, d, d_variance;
};

class ExactOnGpu {
 public:
  // Blocks have at most kMaxOwnRows rows. `scores`: see exact.h.
  ExactOnGpu(const Problem&, const Storage&, const GpuInputs&, const Cublas&, cudaStream_t);

  // Computes O [rows, value_dim] and logsumexp [rows, 1] of a block of query rows; their bounds
  // only if `bounds`.
  void forward(const GpuRows& queries, bool bounds, GpuValues& o, GpuValues& logsumexp);

  // Computes the statistics that the gradients need, for a block of adjacent query rows.
  void statistics(const GpuRows& queries, const double* o, const double* logsumexp, GpuStatistics&);

  void query_gradients(const GpuRows& queries, const GpuStatistics&, GpuValues& dq);
  void key_gradients(const GpuRows& keys, const GpuStatistics&, GpuValues& dk, GpuValues& dv);

  // Memory for the tiles of the naive computation, while none of the functions above runs.
  void* tile(size_t number) const { return tiles_[number].data(); }

 private:
  void multiply(bool transpose_a, bool transpose_b, int64_t rows, int64_t columns, int64_t depth,
                double alpha, const double* a, const double* b, double beta, double* c) const;
  void accumulate(bool over_queries, const double* weights, const GpuRows& queries,
                  const GpuRows& keys, const double* rows, int64_t columns, bool finite,
                  double* sum);
  void gradient_tile(const GpuRows& queries, int64_t first_query, const WideRows& q,
                     const WideRows& d_o, const GpuRows& keys, int64_t first_key, const WideRows& k,
                     const WideRows& v, const GpuStatistics&, bool over_queries);
  GpuRows keys_of(const GpuRows& queries, int64_t first, int64_t count) const;
  template <typename Visit>
  void for_tiles_of_keys(const GpuRows& queries, const Visit&) const;
  void clear(double* values, int64_t count) const;

  const Problem& problem_;
  const Storage storage_;
  const GpuInputs& inputs_;
  const Cublas& cublas_;
  const cudaStream_t stream_;
  std::vector<int64_t> all_rows_;        // 0, 1, ...
  WideRows own_a_, own_b_;               // Q and dO, or K and V, of the block
  WideRows tile_a_, tile_b_;             // the other two, of a tile of the other side
  std::vector<GpuArray<double>> tiles_;  // [own rows, tile rows]: S then P, dP then dS, variances
  GpuArray<double> row_max_, row_sum_, score_variance_, swallowed_;  // per row of a block
  GpuArray<double> variance_, second_variance_, mean_key_;           // [own rows, columns]
};

}  // namespace flashbench::verify
