// st: stores whose instruction or order the compiler is not to choose.
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// 4 bytes of shared memory.
__device__ __forceinline__ void st_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" : : "r"(address), "r"(value) : "memory");
}

// Whoever reads it with ld_acquire_gpu sees all that this thread has written before.
__device__ __forceinline__ void st_release_gpu(int* address, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}

}  // namespace flashbench::ptx
