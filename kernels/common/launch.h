// Launches a CUDA kernel and reports the resources that it uses.
#pragma once

#include <cstdint>
#include <string_view>

#include "device/device.h"
#include "kernels/attention.h"

namespace flashbench::kernels {

// A __global__ function with one argument, and the resources of its thread blocks.
template <typename Arguments>
struct CudaKernel {
  std::string_view name;
  void (*function)(Arguments);
  int threads = 0;       // per thread block
  int shared_bytes = 0;  // of dynamic shared memory, per thread block
};

// When a launch may start: when the one before has ended, or, if its kernel calls
// ptx::griddepcontrol_wait() and the device has sm_90, already when that one lets it, or when the
// one before has ended and all thread blocks fit on the device at once.
enum class Start { after_end, early, together };

namespace detail {

// Untyped versions for any __global__ function; `arguments` holds a pointer to each argument.
void launch_kernel(const void* function, int64_t thread_blocks, int threads, int shared_bytes,
                   void** arguments, Stream, Start);
KernelFacts kernel_facts(std::string_view name, const void* function, int threads,
                         int shared_bytes);

}  // namespace detail

// Throws CudaError if the kernel cannot be launched.
template <typename Arguments>
void launch_kernel(const CudaKernel<Arguments>& kernel, int64_t thread_blocks,
                   const Arguments& arguments, Stream stream, Start start = Start::after_end) {
  void* pointers[] = {const_cast<Arguments*>(&arguments)};
  detail::launch_kernel(reinterpret_cast<const void*>(kernel.function), thread_blocks,
                        kernel.threads, kernel.shared_bytes, pointers, stream, start);
}

// Queries the current device. Throws CudaError.
template <typename Arguments>
KernelFacts kernel_facts(const CudaKernel<Arguments>& kernel) {
  return detail::kernel_facts(kernel.name, reinterpret_cast<const void*>(kernel.function),
                              kernel.threads, kernel.shared_bytes);
}

}  // namespace flashbench::kernels
