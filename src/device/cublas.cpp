#include "device/cublas.h"

#include <algorithm>
#include <stdexcept>

namespace flashbench {

namespace {

// The most products in one call: the limit of a launch grid's z dimension.
constexpr int64_t kMaxCount = 65535;

cudaDataType_t cuda_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return CUDA_R_32F;
    case Dtype::fp16:
      return CUDA_R_16F;
    case Dtype::bf16:
      return CUDA_R_16BF;
    case Dtype::e4m3:
      break;
  }
  throw std::logic_error("cuBLAS multiplies fp32, fp16 and bf16");
}

cublasOperation_t operation(bool transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

int size(int64_t value) {
  return static_cast<int>(value);
}

// cuBLAS is column-major and sees a row-major matrix as its transpose: C^T = B^T A^T.
struct ColumnMajor {
  explicit ColumnMajor(const Gemm& g)
      : first(operation(g.transpose_b)),
        second(operation(g.transpose_a)),
        m(size(g.columns)),
        n(size(g.rows)),
        k(size(g.depth)),
        alpha(static_cast<float>(g.alpha)),
        beta(static_cast<float>(g.beta)),
        compute(g.a.dtype == Dtype::fp32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F) {}

  cublasOperation_t first, second;
  int m, n, k;
  float alpha, beta;
  cublasComputeType_t compute;
};

const void* advance(const DeviceMatrix& matrix, int64_t elements) {
  return static_cast<const std::byte*>(matrix.data) + elements * element_size(matrix.dtype);
}

}  // namespace

void check_cublas(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CublasError(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                    cublas_library().status_name(status) + ", " +
                    cublas_library().status_string(status));
}

Cublas::Cublas(void* stream, void* workspace, size_t workspace_bytes) {
  cublasHandle_t handle = nullptr;
  FLASHBENCH_CUBLAS(cublas_library().create(&handle));
  handle_.reset(handle);
  FLASHBENCH_CUBLAS(cublas_library().set_stream(handle, static_cast<cudaStream_t>(stream)));
  // Must follow the call that sets the stream, which resets the workspace.
  FLASHBENCH_CUBLAS(cublas_library().set_workspace(handle, workspace, workspace_bytes));
  FLASHBENCH_CUBLAS(cublas_library().set_math_mode(
      handle, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                        CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
}

void Cublas::multiply_strided(const Gemm& g, int64_t count, int64_t a_step, int64_t b_step,
                              int64_t c_step) const {
  const ColumnMajor t(g);
  for (int64_t done = 0; done < count; done += kMaxCount) {
    FLASHBENCH_CUBLAS(cublas_library().gemm_strided_batched(
        handle(), t.first, t.second, t.m, t.n, t.k, &t.alpha, advance(g.b, done * b_step),
        cuda_type(g.b.dtype), size(g.b.row_stride), b_step, advance(g.a, done * a_step),
        cuda_type(g.a.dtype), size(g.a.row_stride), a_step, &t.beta,
        const_cast<void*>(advance(g.c, done * c_step)), cuda_type(g.c.dtype), size(g.c.row_stride),
        c_step, size(std::min(kMaxCount, count - done)), t.compute, CUBLAS_GEMM_DEFAULT));
  }
}

void Cublas::multiply_at(const Gemm& g, int64_t count, const void* const* a, const void* const* b,
                         void* const* c) const {
  const ColumnMajor t(g);
  for (int64_t done = 0; done < count; done += kMaxCount) {
    FLASHBENCH_CUBLAS(cublas_library().gemm_batched(
        handle(), t.first, t.second, t.m, t.n, t.k, &t.alpha, b + done, cuda_type(g.b.dtype),
        size(g.b.row_stride), a + done, cuda_type(g.a.dtype), size(g.a.row_stride), &t.beta,
        c + done, cuda_type(g.c.dtype), size(g.c.row_stride),
        size(std::min(kMaxCount, count - done)), t.compute, CUBLAS_GEMM_DEFAULT));
  }
}

}  // namespace flashbench
