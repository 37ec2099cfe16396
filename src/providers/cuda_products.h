// One cuBLAS product for each head of each batch, without copying tensors: layouts and padding are
// strides, and grouped heads share matrices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attention/tensors.h"
#include "device/cublas.h"
#include "device/device.h"

namespace flashbench {

// The matrices of the heads of a tensor, or of the scores.
struct HeadMatrices {
  const void* data = nullptr;
  Dtype dtype = Dtype::fp32;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  int64_t sharers = 1;  // number of successive heads that share a matrix

  bool operator==(const HeadMatrices&) const = default;

  HeadMatrices from(int64_t row, int64_t column = 0) const;

  // Head `first` and every `step`th head after it.
  HeadMatrices heads(int64_t first, int64_t step) const;
  HeadMatrices shared_by(int64_t heads) const;
};

HeadMatrices head_matrices(const ConstTensorView&);

// Why a device cannot run attention as products with the scores in memory; empty if it can.
std::optional<std::string> why_no_products_of_scores(const Problem&, const DeviceInfo&);

class HeadProducts {
 public:
  HeadProducts(Device&, int64_t batch, int64_t heads);

  static int64_t workspace_bytes(int64_t batch, int64_t heads);

  // Multiplies for heads [0, heads) of every batch; `heads` is at most the number given above. The
  // matrices in the Gemm are ignored.
  void multiply(Gemm, int64_t heads, const HeadMatrices& a, const HeadMatrices& b,
                const HeadMatrices& c);

 private:
  void* stream_;
  int64_t batch_;
  Buffer workspace_;
  Buffer addresses_;  // of the matrices of one product; the next product overwrites them in stream
                      // order
  Cublas cublas_;
};

}  // namespace flashbench
