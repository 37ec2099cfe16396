// The textbook computation in the problem's own dtype on a GPU, as in host_naive.h, with
// products on tensor cores for 16-bit dtypes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "device/cublas.h"
#include "verify/cuda_rows.h"

namespace flashbench::verify {

// The largest error so far of the naive computation of one tensor, in device memory.
class GpuError {
 public:
  explicit GpuError(cudaStream_t);
  void add(Dtype stored, const float* naive, const double* exact, int64_t elements);
  double largest() const;  // waits for the stream

 private:
  cudaStream_t stream_;
  GpuArray<double> largest_;
};

class NaiveOnGpu {
 public:
  // Each tile has room for kMaxTileElements fp32 elements, or for as many as the blocks of the
  // problem need.
  NaiveOnGpu(const Problem&, const GpuInputs&, void* first_tile, void* second_tile, const Cublas&,
             cudaStream_t);

  // Computes a block naively, and takes its errors against the exact values into `o` and
  // `logsumexp`.
  void forward(const GpuRows& queries, const double* exact_o, const double* exact_logsumexp,
               GpuError& o, GpuError& logsumexp);

  // Computes the softmax statistics and D of a block of adjacent query rows, which the gradients
  // need.
  void statistics(const GpuRows& queries);
  void query_gradients(const GpuRows& queries, const double* exact, GpuError& dq);
  void key_gradients(const GpuRows& keys, const double* exact_dk, const double* exact_dv,
                     GpuError& dk, GpuError& dv);

 private:
  struct Sums {
    float *max, *sum, *d;
  };
  Sums sums_of(const GpuRows& queries) const;
  DeviceMatrix dense(const void* data, int64_t columns) const;
  DeviceMatrix rows_of(const GpuTensor&, int64_t batch, int64_t head, int64_t first) const;
  void multiply(bool transpose_a, bool transpose_b, int64_t rows, int64_t columns, int64_t depth,
                double alpha, const DeviceMatrix& a, const DeviceMatrix& b, double beta,
                const DeviceMatrix& c) const;
  void softmax(const GpuRows& queries, bool for_gradients);
  void tile(const GpuRows& queries, const DeviceMatrix& q, const DeviceMatrix& d_o,
            const GpuRows& keys, const DeviceMatrix& k, const DeviceMatrix& v);
  void clear(float* values, int64_t count) const;

  const Problem& problem_;
  const GpuInputs& inputs_;
  void *const first_tile_, *const second_tile_;  // S then P, dP then dS
  const Cublas& cublas_;
  const cudaStream_t stream_;
  std::vector<int64_t> all_rows_;      // 0, 1, ...
  GpuArray<std::byte> own_a_, own_b_;  // rows of Q and dO, or K and V
  GpuArray<float> max_, sum_, d_;      // of all query rows; of one head's rows for the forward pass
  GpuArray<float> first_sum_, second_sum_;  // [own rows, head_dim or value_dim]
};

}  // namespace flashbench::verify
