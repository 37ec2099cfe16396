// Warp-level products of tiles in shared memory (shared_tile.h), and stores of accumulators to
// tiles.
#pragma once

#include <cstdint>

#include "kernels/ptx/ldmatrix.h"
#include "kernels/ptx/mma.h"
#include "kernels/ptx/st.h"
#include "kernels/ptx/stmatrix.h"
#include "kernels/ptx/target.h"

namespace flashbench::kernels::mma {

// The row and chunk of a 16 x 16 block that a lane passes to ldmatrix, so that the four registers
// hold an A operand stored as [m, k] or two B operands stored as [k, n] ...
__device__ __forceinline__ int row_major_row(int lane) {
  return lane & 15;
}
__device__ __forceinline__ int row_major_chunk(int lane) {
  return lane >> 4;
}
// ... or an A operand stored as [k, m] or two B operands stored as [n, k].
__device__ __forceinline__ int column_major_row(int lane) {
  return (lane & 7) + (lane >> 4) * 8;
}
__device__ __forceinline__ int column_major_chunk(int lane) {
  return (lane >> 3) & 1;
}

// Stores a 16 x 16 block, held in registers as two accumulator tiles side by side, to a tile.
// `address` is the lane's address of (stored_row, stored_chunk) in the block; `rows` and `chunks`
// are offsets from it.
__device__ __forceinline__ int stored_row(int lane) {
  return ptx::has_sm_90() ? row_major_row(lane) : lane / 4;
}
__device__ __forceinline__ int stored_chunk(int lane) {
  return ptx::has_sm_90() ? row_major_chunk(lane) : 0;
}
template <typename Tile>
__device__ __forceinline__ void store_matrices(uint32_t address, int rows, int chunks,
                                               const uint32_t (&x)[4]) {
  if constexpr (ptx::has_sm_90()) {
    ptx::stmatrix_x4(Tile::move(address, rows, chunks), x);
  } else {
    const uint32_t in_chunk = threadIdx.x % 4 * 4;
    for (int i = 0; i < 4; ++i) {
      ptx::st_shared(Tile::move(address, rows + i % 2 * 8, chunks + i / 2) + in_chunk, x[i]);
    }
  }
}

// C [16 kM, 8 kN] += A B over a depth of 16 kK. `a_address` and `b_address` are the lane's
// addresses in the first 16 x 16 blocks of A and B. kStepN: the distance of a warp's pairs of
// column tiles in B, in pairs. `between` is called after each step of the depth, for work that CUDA
// cores can do while the tensor cores compute.
template <typename Element, typename TileA, bool kTransA, typename TileB, bool kTransB, int kStepN,
          int kK, int kM, int kN, typename Between>
__device__ __forceinline__ void multiply(float (&c)[kM][kN][4], uint32_t a_address,
                                         uint32_t b_address, Between&& between) {
#pragma unroll
  for (int k = 0; k < kK; ++k) {
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      if constexpr (kTransA) {
        ptx::ldmatrix_x4_trans(a[m], TileA::move(a_address, k * 16, m * 2));
      } else {
        ptx::ldmatrix_x4(a[m], TileA::move(a_address, m * 16, k * 2));
      }
    }
#pragma unroll
    for (int n = 0; n < kN / 2; ++n) {
      uint32_t b[4];
      if constexpr (kTransB) {
        ptx::ldmatrix_x4_trans(b, TileB::move(b_address, k * 16, n * 2 * kStepN));
      } else {
        ptx::ldmatrix_x4(b, TileB::move(b_address, n * 16, k * 2));
      }
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        ptx::mma_m16n8k16<Element>(c[m][2 * n], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<Element>(c[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
    between(k);
  }
}

}  // namespace flashbench::kernels::mma
