// One cuBLAS product for each head of each batch, on tensors as they lie: layouts and padding are
// strides, grouped heads share matrices, nothing is copied.
#pragma once

#include <cstdint>

#include "attention/tensors.h"
#include "device/cublas.h"
#include "device/device.h"

namespace flashbench {

// The matrices of the heads: of a tensor, or of the scores.
struct HeadMatrices {
  const void* data = nullptr;
  Dtype dtype = Dtype::fp32;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  int64_t sharers = 1;  // so many heads, one after the other, have the same matrix

  bool operator==(const HeadMatrices&) const = default;

  HeadMatrices from(int64_t row, int64_t column = 0) const;

  // Head `first` and then every `step`th.
  HeadMatrices heads(int64_t first, int64_t step) const;
  HeadMatrices shared_by(int64_t heads) const;
};

HeadMatrices head_matrices(const ConstTensorView&);

class HeadProducts {
 public:
  HeadProducts(Device&, int64_t batch, int64_t heads);

  static int64_t workspace_bytes(int64_t batch, int64_t heads);

  // Multiplies for heads [0, heads) of every batch, which are at most those given above. The
  // matrices in the Gemm are not read.
  void multiply(Gemm, int64_t heads, const HeadMatrices& a, const HeadMatrices& b,
                const HeadMatrices& c);

 private:
  void* stream_;
  int64_t batch_;
  Buffer workspace_;
  Buffer addresses_;  // of the matrices of a product; the next one's come after it in the stream
  Cublas cublas_;
};

}  // namespace flashbench
