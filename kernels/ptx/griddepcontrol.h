// griddepcontrol: launches that overlap (programmatic dependent launch, sm_90).
// docs.nvidia.com/cuda/parallel-thread-execution: "griddepcontrol"
#pragma once

namespace flashbench::ptx {

// Lets the next launch start, if it may, once all thread blocks have called this or ended. It is
// enough that one thread of a thread block does.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

// Waits until the launches before are complete and their writes visible. Returns at once in a
// launch that does not overlap.
__device__ __forceinline__ void griddepcontrol_wait() {
  asm volatile("griddepcontrol.wait;" : : : "memory");
}

}  // namespace flashbench::ptx
