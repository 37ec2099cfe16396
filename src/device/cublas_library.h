// cuBLAS, opened when first needed. Without it the binary still starts and runs on the CPU, and its
// half gigabyte is mapped only where it is used.
#pragma once

#include <cublas_api.h>

#include <optional>
#include <string>

namespace flashbench {

// The entry points that the project uses.
struct CublasLibrary {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&cublasSetMathMode) set_math_mode = nullptr;
  decltype(&cublasGetVersion_v2) get_version = nullptr;
  decltype(&cublasGetStatusName) status_name = nullptr;
  decltype(&cublasGetStatusString) status_string = nullptr;
  decltype(&cublasDgemm_v2) dgemm = nullptr;

  // Written out because C++ headers overload these two.
  cublasStatus_t (*gemm_strided_batched)(cublasHandle_t, cublasOperation_t transpose_a,
                                         cublasOperation_t transpose_b, int m, int n, int k,
                                         const void* alpha, const void* a, cudaDataType a_type,
                                         int lda, long long a_step, const void* b,
                                         cudaDataType b_type, int ldb, long long b_step,
                                         const void* beta, void* c, cudaDataType c_type, int ldc,
                                         long long c_step, int count, cublasComputeType_t,
                                         cublasGemmAlgo_t) = nullptr;
  cublasStatus_t (*gemm_batched)(cublasHandle_t, cublasOperation_t transpose_a,
                                 cublasOperation_t transpose_b, int m, int n, int k,
                                 const void* alpha, const void* const a[], cudaDataType a_type,
                                 int lda, const void* const b[], cudaDataType b_type, int ldb,
                                 const void* beta, void* const c[], cudaDataType c_type, int ldc,
                                 int count, cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
};

// A sentence that says why it cannot be opened; empty if it can.
std::optional<std::string> why_no_cublas();

// Call only if why_no_cublas() is empty.
const CublasLibrary& cublas_library();

}  // namespace flashbench
