// atom: atomic operations on global memory that return the value before.
#pragma once

namespace flashbench::ptx {

// Sets a counter to 0 if it is `limit` or more, else adds 1; returns what it was. Orders memory
// among the threads of the GPU that use the counter: what one has written before is visible to
// those that come after it.
__device__ __forceinline__ unsigned atom_inc_acq_rel_gpu(unsigned* counter, unsigned limit) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(limit)
               : "memory");
  return before;
}

// The same without any order of memory.
__device__ __forceinline__ unsigned atom_inc_relaxed_gpu(unsigned* counter, unsigned limit) {
  unsigned before;
  asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(limit)
               : "memory");
  return before;
}

}  // namespace flashbench::ptx
