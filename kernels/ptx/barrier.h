// barrier: the 16 named barriers of a thread block. __syncthreads uses number 0.
#pragma once

namespace flashbench::ptx {

// Arrives at barrier `number` and waits until `threads` (a multiple of 32) have arrived.
__device__ __forceinline__ void barrier_sync(int number, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" : : "r"(number), "r"(threads) : "memory");
}

// The same. Returns true if `value` is true in all of these threads.
__device__ __forceinline__ bool barrier_and(int number, int threads, bool value) {
  int all;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.s32 p, %3, 0;\n"
      "barrier.cta.red.and.pred.aligned q, %1, %2, p;\n"
      "selp.s32 %0, 1, 0, q;\n"
      "}\n"
      : "=r"(all)
      : "r"(number), "r"(threads), "r"(static_cast<int>(value))
      : "memory");
  return all != 0;
}

// Arrives at barrier `number` without waiting.
__device__ __forceinline__ void barrier_arrive(int number, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" : : "r"(number), "r"(threads) : "memory");
}

}  // namespace flashbench::ptx
