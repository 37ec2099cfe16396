// setmaxnreg: moves registers from one warpgroup of a thread block to another (sm_90a).
#pragma once

namespace flashbench::ptx {

// To `kRegisters` a thread, a multiple of 8 from 24 to 256, by all warps of a warpgroup.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

// Waits until others have given up as many as are missing.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

}  // namespace flashbench::ptx
