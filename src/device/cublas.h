// cuBLAS with every call checked: a handle bound to one stream, and the few products that standard
// attention, the oracle on the GPU and the measured ceilings are made of.
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

// Throws CublasError with file, line, call and cuBLAS's own name of the status.
void check_cublas(cublasStatus_t status, const char* call, const char* file, int line);

// What cuBLAS may use for itself; what NVIDIA recommends for Hopper
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

// Sums in fp32; 16-bit operands on tensor cores without 16-bit sums anywhere, fp32 operands in true
// fp32 (no TF32, whatever the environment says).
class Cublas {
 public:
  // Work goes to `stream` (a cudaStream_t); `workspace` outlives this.
  Cublas(void* stream, void* workspace, size_t workspace_bytes);

  // One product for each of `count` matrices, `*_step` elements apart in memory.
  void multiply_strided(const Gemm&, int64_t count, int64_t a_step, int64_t b_step,
                        int64_t c_step) const;

  // One product for each of `count` matrices, whose addresses stand in arrays in device memory;
  // the matrices' own addresses in the Gemm are not read. 16-bit matrices must be aligned to 16
  // bytes, each one and each row: cuBLAS cannot see whether they are.
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
