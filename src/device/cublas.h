// cuBLAS with every call checked: a handle bound to one stream, and the products that standard
// attention, the oracle on the GPU and the measured ceilings need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "attention/problem.h"
#include "device/cublas_library.h"

namespace flashbench {

class CublasError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws CublasError with file, line, call and cuBLAS's name of the status.
void check_cublas(cublasStatus_t status, const char* call, const char* file, int line);

// The size of cuBLAS's workspace: NVIDIA's recommendation for Hopper
// (https://docs.nvidia.com/cuda/cublas/#cublassetworkspace).
inline constexpr size_t kCublasWorkspaceBytes = size_t{32} << 20;

// A matrix in device memory, row-major: rows of contiguous columns, `row_stride` elements apart.
struct DeviceMatrix {
  const void* data = nullptr;
  Dtype dtype = Dtype::fp32;
  int64_t row_stride = 0;
};

// C [rows, columns] = alpha * op(A) op(B) + beta * C, all row-major.
struct Gemm {
  bool transpose_a = false, transpose_b = false;
  int64_t rows = 0, columns = 0, depth = 0;
  double alpha = 1, beta = 0;
  DeviceMatrix a, b, c;  // c.data is written
};

// Accumulates in fp32. 16-bit operands use tensor cores without any 16-bit accumulation; fp32
// operands use true fp32 (no TF32, whatever the environment says).
class Cublas {
 public:
  // Work is launched on `stream` (a cudaStream_t). `workspace` must outlive this object.
  Cublas(void* stream, void* workspace, size_t workspace_bytes);

  // Multiplies `count` matrices, `*_step` elements apart in memory.
  void multiply_strided(const Gemm&, int64_t count, int64_t a_step, int64_t b_step,
                        int64_t c_step) const;

  // Multiplies `count` matrices whose addresses are in arrays in device memory; the addresses in
  // the Gemm are ignored. 16-bit matrices must be 16-byte aligned, each matrix and each row,
  // because cuBLAS cannot check that.
  void multiply_at(const Gemm&, int64_t count, const void* const* a, const void* const* b,
                   void* const* c) const;

  cublasHandle_t handle() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(cublasHandle_t handle) const { cublas_library().destroy(handle); }
  };
  std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, Destroy> handle_;
};

}  // namespace flashbench

// Throws CublasError.
#define FLASHBENCH_CUBLAS(call) ::flashbench::check_cublas((call), #call, __FILE__, __LINE__)
