#include "device/cublas_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace flashbench {

namespace {

// Stays open for as long as the process lives.
struct Opened {
  CublasLibrary library;
  std::string error;

  Opened() {
    const std::string name = fmt::format("libcublas.so.{}", CUBLAS_VER_MAJOR);
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) error = dlerror();
    if (handle == nullptr) {
      // Where the toolkit had it that this was built with.
      handle = dlopen((FLASHBENCH_CUDA_LIBRARY_DIR "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == nullptr) return;
    error.clear();
    find(handle, library.create, "cublasCreate_v2");
    find(handle, library.destroy, "cublasDestroy_v2");
    find(handle, library.set_stream, "cublasSetStream_v2");
    find(handle, library.set_workspace, "cublasSetWorkspace_v2");
    find(handle, library.set_math_mode, "cublasSetMathMode");
    find(handle, library.get_version, "cublasGetVersion_v2");
    find(handle, library.status_name, "cublasGetStatusName");
    find(handle, library.status_string, "cublasGetStatusString");
    find(handle, library.gemm_strided_batched, "cublasGemmStridedBatchedEx");
    find(handle, library.gemm_batched, "cublasGemmBatchedEx");
    find(handle, library.dgemm, "cublasDgemm_v2");
  }

 private:
  template <typename Function>
  void find(void* handle, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) error = fmt::format("it has no {}", name);
  }
};

const Opened& opened() {
  static const Opened instance;
  return instance;
}

}  // namespace

std::optional<std::string> why_no_cublas() {
  if (opened().error.empty()) return std::nullopt;
  return fmt::format("cuBLAS {} is needed on a GPU and cannot be opened: {}", CUBLAS_VER_MAJOR,
                     opened().error);
}

const CublasLibrary& cublas_library() {
  return opened().library;
}

}  // namespace flashbench
