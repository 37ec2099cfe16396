// Helpers for tests of single instructions on a GPU: memory, and launches with a time limit.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device/cuda_call.h"
#include "device/device.h"

namespace flashbench::kernels {

// Waits until all work in the streams is done. Ends the process after `seconds`: a kernel that
// hangs cannot be stopped, and any further use of the GPU, even freeing memory, would wait for it.
inline void finish_or_exit(std::initializer_list<Stream> streams, double seconds,
                           const std::string& what) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  for (const Stream& stream : streams) {
    cudaError_t status;
    while ((status = cudaStreamQuery(static_cast<cudaStream_t>(stream.cuda))) ==
           cudaErrorNotReady) {
      if (Clock::now() < deadline) continue;
      std::printf("%s: not done after %g seconds\n", what.c_str(), seconds);
      std::fflush(stdout);
      std::_Exit(1);
    }
    FLASHBENCH_CUDA(status);
  }
}

// An array in device memory.
template <typename T>
class OnGpu {
 public:
  explicit OnGpu(const std::vector<T>& values) : count_(values.size()) {
    FLASHBENCH_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), count_ * sizeof(T)));
    FLASHBENCH_CUDA(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  explicit OnGpu(size_t count, T value = {}) : OnGpu(std::vector<T>(count, value)) {}
  ~OnGpu() { cudaFree(data_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  T* data() const { return data_; }
  std::vector<T> to_host() const {
    std::vector<T> values(count_);
    FLASHBENCH_CUDA(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t count_;
  T* data_ = nullptr;
};

// Runs a kernel to its end, on `blocks` thread blocks with `shared_bytes` of dynamic shared memory.
template <typename... Parameters, typename... Arguments>
void run(void (*kernel)(Parameters...), int blocks, int threads, int shared_bytes,
         Arguments&&... arguments) {
  FLASHBENCH_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {const_cast<void*>(static_cast<const void*>(&value))...};
        FLASHBENCH_CUDA(cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                                         dim3(static_cast<unsigned>(blocks)),
                                         dim3(static_cast<unsigned>(threads)), pointers,
                                         static_cast<size_t>(shared_bytes), nullptr));
      },
      values);
  finish_or_exit({Stream{}}, 20, "the kernel");
}

}  // namespace flashbench::kernels
