// Checked calls of the CUDA runtime: a failure becomes an exception with file, line, call and
// CUDA's own text.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace flashbench {

class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  throw CudaError(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                  cudaGetErrorName(status) + ", " + cudaGetErrorString(status));
}

}  // namespace flashbench

// Throws CudaError. After a launch: FLASHBENCH_CUDA(cudaGetLastError()).
#define FLASHBENCH_CUDA(call) ::flashbench::check_cuda((call), #call, __FILE__, __LINE__)
