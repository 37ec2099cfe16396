// Ways to read memory as fast as the GPU can. Which is fastest depends on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

namespace flashbench::cuda_read {

// What a kernel keeps in flight decides its rate: each multiprocessor must have asked for more than
// the memory delivers during a latency.
struct Way {
  const char* description;  // e.g. "4 loads of 16 bytes a thread, a block of ..."
  // Reads bytes [0, bytes), a multiple of kStep, without effect: *out changes only if the values
  // mix to one that is as good as impossible. Throws CudaError.
  void (*launch)(const void* data, size_t bytes, unsigned* out, int multiprocessors, cudaStream_t);
};
inline constexpr size_t kStep = size_t{1} << 20;

std::span<const Way> ways();

}  // namespace flashbench::cuda_read
