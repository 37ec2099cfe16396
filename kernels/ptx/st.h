// st: stores whose instruction or memory order must not be left to the compiler.
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// Stores 4 bytes to shared memory.
__device__ __forceinline__ void st_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" : : "r"(address), "r"(value) : "memory");
}

// Stores 16 bytes to a 16-byte aligned address in shared memory.
__device__ __forceinline__ void st_shared_v4(uint32_t address, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(address), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

// Stores 16 bytes in the order of the program.
__device__ __forceinline__ void st_v4(uint4* address, uint4 v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// Stores with release order: a thread that reads the value with ld_acquire_gpu sees all earlier
// writes of this thread.
__device__ __forceinline__ void st_release_gpu(int* address, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}

// Stores a value for ld_relaxed_gpu, without any order to other writes.
__device__ __forceinline__ void st_relaxed_gpu(unsigned* address, unsigned value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}

// The same for ld_relaxed_gpu_v2 and ld_relaxed_gpu_v4.
__device__ __forceinline__ void st_relaxed_gpu_v2(float2* address, float2 v) {
  asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};"
               :
               : "l"(address), "f"(v.x), "f"(v.y)
               : "memory");
}
__device__ __forceinline__ void st_relaxed_gpu_v4(float4* address, float4 v) {
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(address), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}

}  // namespace flashbench::ptx
