#include "device/cublas_library.h"

#include <fmt/format.h>

#include "host/shared_library.h"

namespace flashbench {

namespace {

// On the loader's path, then in the library folder of the toolkit that this was built with.
std::vector<std::string> places() {
  const std::string name = fmt::format("libcublas.so.{}", CUBLAS_VER_MAJOR);
  return {name, FLASHBENCH_CUDA_LIBRARY_DIR "/" + name};
}

struct Opened {
  CublasLibrary library;
  SharedLibrary file{places()};

  Opened() {
    file.find(library.create, "cublasCreate_v2");
    file.find(library.destroy, "cublasDestroy_v2");
    file.find(library.set_stream, "cublasSetStream_v2");
    file.find(library.set_workspace, "cublasSetWorkspace_v2");
    file.find(library.set_math_mode, "cublasSetMathMode");
    file.find(library.get_version, "cublasGetVersion_v2");
    file.find(library.status_name, "cublasGetStatusName");
    file.find(library.status_string, "cublasGetStatusString");
    file.find(library.gemm_strided_batched, "cublasGemmStridedBatchedEx");
    file.find(library.gemm_batched, "cublasGemmBatchedEx");
    file.find(library.dgemm, "cublasDgemm_v2");
  }
};

const Opened& opened() {
  static const Opened instance;
  return instance;
}

}  // namespace

std::optional<std::string> why_no_cublas() {
  if (opened().file.error().empty()) return std::nullopt;
  return fmt::format("cuBLAS {} is needed on a GPU and cannot be opened: {}", CUBLAS_VER_MAJOR,
                     opened().file.error());
}

const CublasLibrary& cublas_library() {
  return opened().library;
}

}  // namespace flashbench
