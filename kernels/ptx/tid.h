// The special register %tid.
#pragma once

namespace flashbench::ptx {

// mov %tid.x, volatile: unlike threadIdx.x, every call reads the register again.
__device__ __forceinline__ int tid_x() {
  int x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}

}  // namespace flashbench::ptx
