// The special register %globaltimer.
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// Nanoseconds of the GPU's clock.
__device__ __forceinline__ uint64_t globaltimer() {
  uint64_t nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

}  // namespace flashbench::ptx
