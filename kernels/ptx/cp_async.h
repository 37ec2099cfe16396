// cp.async: copies from global to shared memory that bypass registers (sm_80).
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// Copies 16 bytes, bypassing L1. Both addresses are 16-byte aligned. Reads only the first `bytes`
// (0 to 16) bytes and fills the rest with zeros; with 0 the global address is not accessed.
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(shared), "l"(global), "r"(bytes)
               : "memory");
}

// Closes a group of all copies that this thread started since its last group.
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}

// Waits until at most `kPending` of this thread's latest groups are in flight. Other threads see
// the copies only after a barrier.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

}  // namespace flashbench::ptx
