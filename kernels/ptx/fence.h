// fence: waits until this thread's accesses to memory are visible to others.
#pragma once

namespace flashbench::ptx {

// Whoever sees what this thread writes after it also sees what it wrote before. Additions by red
// count as writes.
__device__ __forceinline__ void fence_acq_rel_gpu() {
  asm volatile("fence.acq_rel.gpu;" : : : "memory");
}

}  // namespace flashbench::ptx
