// mma.sync.m16n8k16 with 16-bit inputs and fp32 accumulators (sm_80).
// docs.nvidia.com/cuda/parallel-thread-execution: "Matrix Fragments for mma.m16n8k16"
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace flashbench::ptx {

// D += A B, with A [16, 16] row-major, B [16, 8] column-major and D [16, 8]. A and B hold two
// elements to a register. Lane l holds:
//   A: rows l/4 (a[0], a[2]) and l/4 + 8 (a[1], a[3]), columns 2(l%4) + {0, 1} (a[0], a[1]) and
//      8 further (a[2], a[3]);
//   B: column l/4, rows 2(l%4) + {0, 1} (b0) and 8 further (b1);
//   D: rows l/4 (d[0], d[1]) and l/4 + 8 (d[2], d[3]), columns 2(l%4) + {0, 1}.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1);

template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&d)[4], const uint32_t (&a)[4],
                                                     uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4],
                                                            uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace flashbench::ptx
