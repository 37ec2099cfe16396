// ldmatrix: 8x8 matrices of 16-bit elements from shared memory into mma fragments (sm_75).
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// Loads four matrices. Lane l passes the address of row l%8 of matrix l/8 (16 bytes, 16-byte
// aligned). From each matrix it receives row l/4, columns 2(l%4) + {0, 1}.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// The same with transposition: from each matrix lane l receives column l/4, rows 2(l%4) + {0, 1}.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

}  // namespace flashbench::ptx
