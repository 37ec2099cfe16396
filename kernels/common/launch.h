// A CUDA kernel as the host sees it: how it is launched, and what it then takes of a
// multiprocessor.
#pragma once

#include <cstdint>
#include <string_view>

#include "device/device.h"
#include "kernels/attention.h"

namespace flashbench::kernels {

// A __global__ function of one argument with the sizes of its thread blocks.
template <typename Arguments>
struct CudaKernel {
  std::string_view name;
  void (*function)(Arguments);
  int threads = 0;       // of a thread block
  int shared_bytes = 0;  // of dynamic shared memory of a thread block
};

namespace detail {

// The same of any __global__ function; `arguments` holds a pointer to each of its arguments.
void launch_kernel(const void* function, int64_t thread_blocks, int threads, int shared_bytes,
                   void** arguments, Stream);
KernelFacts kernel_facts(std::string_view name, const void* function, int threads,
                         int shared_bytes);

}  // namespace detail

// Throws CudaError if the kernel cannot be launched.
template <typename Arguments>
void launch_kernel(const CudaKernel<Arguments>& kernel, int64_t thread_blocks,
                   const Arguments& arguments, Stream stream) {
  void* pointers[] = {const_cast<Arguments*>(&arguments)};
  detail::launch_kernel(reinterpret_cast<const void*>(kernel.function), thread_blocks,
                        kernel.threads, kernel.shared_bytes, pointers, stream);
}

// On the current device. Throws CudaError.
template <typename Arguments>
KernelFacts kernel_facts(const CudaKernel<Arguments>& kernel) {
  return detail::kernel_facts(kernel.name, reinterpret_cast<const void*>(kernel.function),
                              kernel.threads, kernel.shared_bytes);
}

}  // namespace flashbench::kernels
