// cp.async: copies from global to shared memory that bypass registers (sm_80).
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// 16 bytes, around L1; both addresses 16-byte aligned. Reads the first `bytes` (0 to 16) of them
// and fills the rest with zeros; with 0 the global address is not accessed.
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(shared), "l"(global), "r"(bytes)
               : "memory");
}

// Makes one group of this thread's copies since the last group.
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}

// Waits until at most `kPending` of this thread's latest groups are still under way. Other threads
// see the copies only after a barrier.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

}  // namespace flashbench::ptx
