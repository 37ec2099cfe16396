// stmatrix: 8x8 matrices of 16-bit elements from mma fragments into shared memory (sm_90).
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// Stores four matrices, the inverse of ldmatrix_x4. Lane l passes the address of row l%8 of matrix
// l/8 (16 bytes, 16-byte aligned). Of each matrix it holds row l/4, columns 2(l%4) + {0, 1}.
__device__ __forceinline__ void stmatrix_x4(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// The same with transposition: of each matrix lane l holds column l/4, rows 2(l%4) + {0, 1}.
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// The same for two matrices; the addresses of lanes 0 to 15 count.
__device__ __forceinline__ void stmatrix_x2_trans(uint32_t address, const uint32_t (&r)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
               :
               : "r"(address), "r"(r[0]), "r"(r[1])
               : "memory");
}

}  // namespace flashbench::ptx
