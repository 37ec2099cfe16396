// setmaxnreg: moves registers from one warpgroup of a thread block to another (sm_90a).
#pragma once

namespace flashbench::ptx {

// Reduces the registers per thread to `kRegisters`, a multiple of 8 from 24 to 256. All warps of
// the warpgroup execute it.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

// Raises them to `kRegisters`. Waits until other warpgroups have released enough registers.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

}  // namespace flashbench::ptx
