// cuBLASLt's products of e4m3, which cuBLAS does not have. It is opened when first needed.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "attention/problem.h"

namespace flashbench {

// A sentence that says why it cannot be opened; empty if it can.
std::optional<std::string> why_no_cublas_lt();

// Every size and stride of a product of bytes is a multiple of this, and every matrix begins at a
// multiple of as many bytes.
inline constexpr int64_t kBytesStep = 16;

// The most products at once.
inline constexpr int64_t kMostBytesProducts = 65535;

// C = A B^T, `count` times: A [rows, depth] and B [columns, depth] of e4m3 and C [rows, columns] of
// bf16 or fp32, all row-major. Their rows and matrices lie behind each other, but those of B are
// further apart.
struct BytesGemm {
  int64_t count = 0, rows = 0, columns = 0, depth = 0;
  int64_t b_row_stride = 0, b_step = 0;  // in elements
  Dtype c = Dtype::fp32;
};

// Calls `destroy` of the library on an object of its own.
template <typename Handle>
using CublasLtHandle = std::unique_ptr<std::remove_pointer_t<Handle>, void (*)(Handle)>;

// The kernel that cuBLASLt chooses for a product. Sums are fp32, to which those of Hopper's tensor
// cores are promoted on the way: fast accumulation is off.
class BytesProduct {
 public:
  // Throws Unsupported if cuBLASLt has no kernel for it, CublasError.
  BytesProduct(cublasLtHandle_t, const BytesGemm&, size_t workspace_bytes);

  // Launches on `stream`, a cudaStream_t. Throws CublasError.
  void multiply(const void* a, const void* b, void* c, void* workspace, void* stream) const;

 private:
  cublasLtHandle_t handle_;
  size_t workspace_bytes_;
  CublasLtHandle<cublasLtMatmulDesc_t> operation_;
  CublasLtHandle<cublasLtMatrixLayout_t> a_, b_, c_;
  cublasLtMatmulAlgo_t algorithm_{};
};

// Throws CublasError. Call only if why_no_cublas_lt() is empty.
CublasLtHandle<cublasLtHandle_t> make_cublas_lt();

}  // namespace flashbench
