// What the main kernels of the backward pass for Hopper share that compute S and dP as [queries,
// keys]: these products, the mask, and how P and dS get to shared memory as [keys, queries].
#pragma once

#include <cstdint>

#include "kernels/ptx/cvt.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/stmatrix.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// The mask of a thread's part of S. In its row h (0 or 1), columns before end[h] are visible, with
// windows from begin[h] on. Columns count from the thread's first, which is `first_key` among those
// of the work.
template <typename Work, int kFloats>
struct VisibleKeys {
  int begin[Work::kKnowsWindows ? 2 : 0], end[2];

  __device__ VisibleKeys(const BackwardArguments& a, const Work& work, int first_query,
                         int first_key) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + 8 * half;
      end[half] = query < work.q_len(a) ? min(work.key_end(a), query + work.diagonal(a) + 1) -
                                              work.first_key - first_key
                                        : 0;
      if constexpr (Work::kKnowsWindows) {
        begin[half] = query + work.first_from(a) - work.first_key - first_key;
      }
    }
  }
  __device__ bool operator()(int i) const {
    const int column = i / 4 * 8 + i % 2, half = i / 2 % 2;
    if constexpr (Work::kKnowsWindows) {
      if (column < begin[half]) return false;
    }
    return column < end[half];
  }
  // Selects rather than multiplies by 0: a masked element may be NaN.
  __device__ void select(float (&x)[kFloats]) const {
#pragma unroll
    for (int i = 0; i < kFloats; ++i) x[i] = (*this)(i) ? x[i] : 0;
  }
};

// The matrix at `offset` in shared memory. All matrices derive from one address, so that the
// compiler needs few registers for them.
template <typename Shared>
__device__ ptx::WgmmaMatrix matrix_at(const Shared& shared, int offset, int panel_bytes) {
  return ptx::WgmmaMatrix(ptx::shared_address(&shared), static_cast<uint32_t>(panel_bytes))
      .advance(offset);
}

// Starts product = A B^T for A [64, kHeadDim] and B [kKeys, kHeadDim], in panels of these sizes.
template <typename T, int kHeadDim, int kKeys>
__device__ __forceinline__ void issue_scores(float (&product)[kKeys / 2], ptx::WgmmaMatrix a,
                                             int a_panel_bytes, ptx::WgmmaMatrix b,
                                             int b_panel_bytes) {
  ptx::keep_here(product);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    const int panel = step / 4, bytes = step % 4 * 32;
    ptx::Wgmma<kKeys>::template multiply_shared<T>(
        product, a.advance(panel * a_panel_bytes + bytes), b.advance(panel * b_panel_bytes + bytes),
        step != 0);
  }
}

// The offset in a panel that a lane addresses in a transposed stmatrix or ldmatrix of 16 rows. The
// warp holds 16 of the 64 columns.
__device__ __forceinline__ uint32_t transposed_offset() {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
  return row * kRowBytes + (chunk ^ lane % 8) * 16;
}

// Stores a warp's 16 rows of P or dS, rounded and transposed.
template <typename T, int kFloats>
__device__ __forceinline__ void store_transposed(const float (&x)[kFloats], uint32_t to) {
  uint32_t words[kFloats / 2];
#pragma unroll
  for (int i = 0; i < kFloats; i += 2) words[i / 2] = ptx::cvt_rn_x2<T>(x[i], x[i + 1]);
#pragma unroll
  for (int i = 0; i < kFloats; i += 8) {
    const uint32_t* w = words + i / 2;
    if (i + 8 <= kFloats) {
      ptx::stmatrix_x4_trans(to + i * 2 * kRowBytes, {w[0], w[1], w[2], w[3]});
    } else {
      ptx::stmatrix_x2_trans(to + i * 2 * kRowBytes, {w[0], w[1]});
    }
  }
}

}  // namespace flashbench::kernels::sm90
