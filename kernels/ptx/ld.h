// ld: loads whose instruction or memory order must not be left to the compiler.
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// Loads 16 bytes from a 16-byte aligned address in shared memory.
__device__ __forceinline__ uint4 ld_shared_v4(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// Loads 16 bytes that this thread reads once, in the order of the program.
__device__ __forceinline__ uint4 ld_no_allocate_v4(const uint4* address) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
}

// Loads a value that any thread of the GPU stored with st_release_gpu, or added to with
// red_release_gpu_add. Earlier writes of that thread are then visible.
__device__ __forceinline__ int ld_acquire_gpu(const int* address) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// Loads a value that another thread of the GPU may be storing with st_relaxed_gpu.
__device__ __forceinline__ unsigned ld_relaxed_gpu(const unsigned* address) {
  unsigned value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// The same of several floats, at an address aligned to all of them. Each is loaded for itself.
__device__ __forceinline__ float2 ld_relaxed_gpu_v2(const float2* address) {
  float2 v;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];"
               : "=f"(v.x), "=f"(v.y)
               : "l"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ float4 ld_relaxed_gpu_v4(const float4* address) {
  float4 v;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(address)
               : "memory");
  return v;
}

}  // namespace flashbench::ptx
