// movmatrix: transposes a matrix in the registers of a warp (sm_75).
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// Transposes an 8x8 matrix of 16-bit elements, of which lane l holds row l/4, columns 2(l%4) +
// {0, 1}, before and after.
__device__ __forceinline__ uint32_t movmatrix_trans(uint32_t x) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(x));
  return transposed;
}

}  // namespace flashbench::ptx
