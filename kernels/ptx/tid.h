// The special register %tid.
#pragma once

namespace flashbench::ptx {

// mov %tid.x, volatile: unlike threadIdx.x, read again by every call.
__device__ __forceinline__ int tid_x() {
  int x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}

}  // namespace flashbench::ptx
