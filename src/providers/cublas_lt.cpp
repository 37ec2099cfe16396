#include "providers/cublas_lt.h"

#include <cublas_api.h>
#include <fmt/format.h>

#include <stdexcept>
#include <vector>

#include "device/cublas.h"
#include "host/shared_library.h"
#include "providers/provider.h"

namespace flashbench {

namespace {

// The entry points that the project uses.
struct CublasLtLibrary {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_operation = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
};

// On the loader's path, then in the library folder of the toolkit that this was built with.
std::vector<std::string> cublas_lt_places() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  return {name, FLASHBENCH_CUDA_LIBRARY_DIR "/" + name};
}

struct OpenedCublasLt {
  CublasLtLibrary library;
  SharedLibrary file{cublas_lt_places()};

  OpenedCublasLt() {
    file.find(library.create, "cublasLtCreate");
    file.find(library.destroy, "cublasLtDestroy");
    file.find(library.status_name, "cublasLtGetStatusName");
    file.find(library.status_string, "cublasLtGetStatusString");
    file.find(library.create_operation, "cublasLtMatmulDescCreate");
    file.find(library.destroy_operation, "cublasLtMatmulDescDestroy");
    file.find(library.set_operation, "cublasLtMatmulDescSetAttribute");
    file.find(library.create_layout, "cublasLtMatrixLayoutCreate");
    file.find(library.destroy_layout, "cublasLtMatrixLayoutDestroy");
    file.find(library.set_layout, "cublasLtMatrixLayoutSetAttribute");
    file.find(library.create_preference, "cublasLtMatmulPreferenceCreate");
    file.find(library.destroy_preference, "cublasLtMatmulPreferenceDestroy");
    file.find(library.set_preference, "cublasLtMatmulPreferenceSetAttribute");
    file.find(library.choose, "cublasLtMatmulAlgoGetHeuristic");
    file.find(library.multiply, "cublasLtMatmul");
  }
};

const OpenedCublasLt& opened_cublas_lt() {
  static const OpenedCublasLt instance;
  return instance;
}

const CublasLtLibrary& cublas_lt() {
  return opened_cublas_lt().library;
}

// Throws CublasError.
void check_cublas_lt(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CublasError(fmt::format("{}: {}, {}", call, cublas_lt().status_name(status),
                                cublas_lt().status_string(status)));
}

CublasLtHandle<cublasLtMatmulDesc_t> make_operation() {
  cublasLtMatmulDesc_t operation = nullptr;
  check_cublas_lt(cublas_lt().create_operation(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                  "cublasLtMatmulDescCreate");
  CublasLtHandle<cublasLtMatmulDesc_t> made(
      operation, [](cublasLtMatmulDesc_t o) { cublas_lt().destroy_operation(o); });
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check_cublas_lt(cublas_lt().set_operation(operation, attribute, &value, sizeof(value)),
                    "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{0});
  return made;
}

// Of column-major matrices: a row-major one is its transpose.
CublasLtHandle<cublasLtMatrixLayout_t> make_layout(cudaDataType type, int64_t rows, int64_t columns,
                                                   int64_t row_stride, int64_t count,
                                                   int64_t step) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas_lt(cublas_lt().create_layout(&layout, type, static_cast<uint64_t>(columns),
                                            static_cast<uint64_t>(rows), row_stride),
                  "cublasLtMatrixLayoutCreate");
  CublasLtHandle<cublasLtMatrixLayout_t> made(
      layout, [](cublasLtMatrixLayout_t l) { cublas_lt().destroy_layout(l); });
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    check_cublas_lt(cublas_lt().set_layout(layout, attribute, &value, sizeof(value)),
                    "cublasLtMatrixLayoutSetAttribute");
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  return made;
}

// Of a kernel: parts of a sum are added in fp32, whatever C is.
CublasLtHandle<cublasLtMatmulPreference_t> make_preference(size_t workspace_bytes) {
  cublasLtMatmulPreference_t preference = nullptr;
  check_cublas_lt(cublas_lt().create_preference(&preference), "cublasLtMatmulPreferenceCreate");
  CublasLtHandle<cublasLtMatmulPreference_t> made(
      preference, [](cublasLtMatmulPreference_t p) { cublas_lt().destroy_preference(p); });
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_cublas_lt(cublas_lt().set_preference(preference, attribute, &value, sizeof(value)),
                    "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes});
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(attribute, static_cast<uint32_t>(kBytesStep));
  }
  return made;
}

cudaDataType type_of_c(Dtype dtype) {
  if (dtype != Dtype::fp32 && dtype != Dtype::bf16) {
    throw std::logic_error("products of bytes are stored in fp32 or bf16");
  }
  return dtype == Dtype::fp32 ? CUDA_R_32F : CUDA_R_16BF;
}

}  // namespace

std::optional<std::string> why_no_cublas_lt() {
  const std::string& error = opened_cublas_lt().file.error();
  if (error.empty()) return std::nullopt;
  return fmt::format("cuBLASLt {} is needed for products of bytes and cannot be opened: {}",
                     CUBLAS_VER_MAJOR, error);
}

CublasLtHandle<cublasLtHandle_t> make_cublas_lt() {
  cublasLtHandle_t handle = nullptr;
  check_cublas_lt(cublas_lt().create(&handle), "cublasLtCreate");
  return {handle, [](cublasLtHandle_t h) { cublas_lt().destroy(h); }};
}

BytesProduct::BytesProduct(cublasLtHandle_t handle, const BytesGemm& g, size_t workspace_bytes)
    : handle_(handle),
      workspace_bytes_(workspace_bytes),
      operation_(make_operation()),
      a_(make_layout(CUDA_R_8F_E4M3, g.rows, g.depth, g.depth, g.count, g.rows * g.depth)),
      b_(make_layout(CUDA_R_8F_E4M3, g.columns, g.depth, g.b_row_stride, g.count, g.b_step)),
      c_(make_layout(type_of_c(g.c), g.rows, g.columns, g.columns, g.count, g.rows * g.columns)) {
  const auto preference = make_preference(workspace_bytes);
  cublasLtMatmulHeuristicResult_t chosen{};
  int found = 0;
  // In its order of columns C^T = B A^T, so that our B is its first factor.
  const cublasStatus_t status =
      cublas_lt().choose(handle, operation_.get(), b_.get(), a_.get(), c_.get(), c_.get(),
                         preference.get(), 1, &chosen, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0)) {
    throw Unsupported(
        fmt::format("cuBLASLt has no kernel for {} products of e4m3 of [{}, {}] and [{}, {}]",
                    g.count, g.rows, g.depth, g.depth, g.columns));
  }
  check_cublas_lt(status, "cublasLtMatmulAlgoGetHeuristic");
  algorithm_ = chosen.algo;
}

void BytesProduct::multiply(const void* a, const void* b, void* c, void* workspace,
                            void* stream) const {
  const float one = 1, zero = 0;
  check_cublas_lt(cublas_lt().multiply(handle_, operation_.get(), &one, b, b_.get(), a, a_.get(),
                                       &zero, c, c_.get(), c, c_.get(), &algorithm_, workspace,
                                       workspace_bytes_, static_cast<cudaStream_t>(stream)),
                  "cublasLtMatmul");
}

}  // namespace flashbench
