// ld: loads whose instruction or order the compiler is not to choose.
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// 16 bytes of shared memory, aligned to 16.
__device__ __forceinline__ uint4 ld_shared_v4(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// What another thread of the GPU stored with st_release_gpu, and all that it had written before.
__device__ __forceinline__ int ld_acquire_gpu(const int* address) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

}  // namespace flashbench::ptx
