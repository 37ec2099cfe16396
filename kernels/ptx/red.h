// red.add: adds to global memory. The order among threads is undefined.
#pragma once

namespace flashbench::ptx {

__device__ __forceinline__ void red_add_f32(float* address, float value) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" : : "l"(address), "f"(value) : "memory");
}

// The same where other GPUs add, too.
__device__ __forceinline__ void red_sys_add_f32(float* address, float value) {
  asm volatile("red.relaxed.sys.global.add.f32 [%0], %1;" : : "l"(address), "f"(value) : "memory");
}

// Adds to four floats at a 16-byte aligned address (sm_90).
__device__ __forceinline__ void red_add_v4_f32(float* address, const float (&v)[4]) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(address), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}

// The same where other GPUs add, too.
__device__ __forceinline__ void red_sys_add_v4_f32(float* address, const float (&v)[4]) {
  asm volatile("red.relaxed.sys.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(address), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}

// Adds with release order: a thread that reads the sum with ld_acquire_gpu sees all earlier writes
// of this thread, and those that it has seen.
__device__ __forceinline__ void red_release_gpu_add(int* address, int value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}

}  // namespace flashbench::ptx
