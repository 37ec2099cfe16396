// barrier: the 16 numbered barriers of a thread block, number 0 being that of __syncthreads.
#pragma once

namespace flashbench::ptx {

// Arrives at barrier `number` and waits until `threads` (a multiple of 32) have arrived.
__device__ __forceinline__ void barrier_sync(int number, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" : : "r"(number), "r"(threads) : "memory");
}

// Arrives and does not wait.
__device__ __forceinline__ void barrier_arrive(int number, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" : : "r"(number), "r"(threads) : "memory");
}

}  // namespace flashbench::ptx
