// Code that the kernels for Hopper share: how specialised warps hand buffers to each other, and how
// TMA loads matrices into shared memory and stores them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/stmatrix.h"
#include "kernels/sm90/consumer_rows.h"
#include "kernels/sm90/tensor_map.h"

namespace flashbench::kernels::sm90 {

// A matrix in shared memory consists of panels that are 64 columns wide, the reach of the swizzle.
inline constexpr int kRowBytes = 128;  // per panel

// The position of a producer or consumer in a ring buffer.
template <int kStages>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;  // parity of the `full` phase in which the stage holds the next block

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }

  // Keeps the compiler from computing the position later than here.
  __device__ __forceinline__ void keep_here() { asm volatile("" : "+r"(stage), "+r"(parity)); }
};

// The same of block number `i`.
template <int kStages>
struct RingPlace {
  unsigned stage, parity;
  __device__ explicit RingPlace(unsigned i) : stage(i % kStages), parity(i / kStages % 2) {}
};

// Called before each wait and arrival; does nothing. Tests replace it to delay warps there.
// Where one lane arrives for its warp, all lanes call it: a wgmma may follow, which needs the whole
// warp.
struct NoDelay {
  static __device__ void before_barrier() {}
};

template <typename Delay>
struct Barriers {
  static __device__ __forceinline__ void arrive(const uint64_t& barrier) {
    Delay::before_barrier();
    ptx::mbarrier_arrive(ptx::shared_address(&barrier));
  }

  // Arrives for a warp: its first lane does.
  static __device__ __forceinline__ void release(int lane, const uint64_t& empty) {
    Delay::before_barrier();
    if (lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&empty));
  }

  // Tests whether the phase with this parity is complete.
  static __device__ __forceinline__ bool is_full(const uint64_t& barrier, uint32_t parity) {
    Delay::before_barrier();
    return ptx::mbarrier_test_wait_parity(ptx::shared_address(&barrier), parity);
  }

  // Waits until the phase with this parity is complete.
  static __device__ __forceinline__ void wait(const uint64_t& barrier, uint32_t parity) {
    Delay::before_barrier();
    while (!ptx::mbarrier_try_wait_parity(ptx::shared_address(&barrier), parity)) {
    }
  }
};

// The rows of one head, for copies with a map of tensor_map().
struct RowsOfHead {
  int head, batch;

  __device__ __forceinline__ void load(uint32_t to, const CUtensorMap& map, int column, int row,
                                       uint32_t barrier, ptx::CachePolicy policy) const {
    ptx::cp_async_bulk_tensor_4d(to, map, column, row, head, batch, barrier, policy);
  }
  __device__ __forceinline__ void prefetch(const CUtensorMap& map, int column, int row) const {
    ptx::cp_async_bulk_prefetch_tensor_4d(map, column, row, head, batch);
  }
  __device__ __forceinline__ void store(const CUtensorMap& map, int column, int row,
                                        uint32_t from) const {
    ptx::cp_async_bulk_tensor_4d(map, column, row, head, batch, from);
  }
};

// The same of one request, for a map of request_map(). Its `count` rows are numbered from 0;
// `first` is the number of the first among the rows of the tensor, if these count through all
// requests.
struct RowsOfRequest {
  static constexpr int kMapRows = 1 << 30;
  int head, before, end;

  __device__ RowsOfRequest(const RowSteps& steps, int request, int head_, int first, int count)
      : head(head_),
        before(kMapRows - count),
        end(request * steps.request + (first + count) * steps.row) {}

  __device__ __forceinline__ void load(uint32_t to, const CUtensorMap& map, int column, int row,
                                       uint32_t barrier, ptx::CachePolicy policy) const {
    ptx::cp_async_bulk_tensor_5d(to, map, column, before + row, head, end, kMapRows, barrier,
                                 policy);
  }
  __device__ __forceinline__ void prefetch(const CUtensorMap& map, int column, int row) const {
    ptx::cp_async_bulk_prefetch_tensor_5d(map, column, before + row, head, end, kMapRows);
  }
  __device__ __forceinline__ void store(const CUtensorMap& map, int column, int row,
                                        uint32_t from) const {
    ptx::cp_async_bulk_tensor_5d(map, column, before + row, head, end, kMapRows, from);
  }
};

// Loads a block of rows into shared memory, panel by panel; `barrier` counts the bytes.
template <int kPanels, int kPanelBytes, int kPanelColumns = 64, typename Rows>
__device__ __forceinline__ void load_rows(const CUtensorMap& map, char* to, uint32_t barrier,
                                          const Rows& rows, int row, ptx::CachePolicy policy) {
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    rows.load(ptx::shared_address(to) + panel * kPanelBytes, map, panel * kPanelColumns, row,
              barrier, policy);
  }
}

// Has TMA store rows [row, row + count) from shared memory, panel by panel, 16 at a time: those
// from row + i on if has(i).
template <int kPanels, int kPanelBytes, typename Rows, typename Has>
__device__ __forceinline__ void store_rows(const CUtensorMap& map, const Rows& rows, int row,
                                           int count, uint32_t from, const Has& has) {
#pragma unroll 1
  for (int i = 0; i < count; i += kWarpRows) {
    if (!has(i)) continue;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      rows.store(map, panel * 64, row + i, from + panel * kPanelBytes + i * kRowBytes);
    }
  }
}

// Rounds a warp's 16 rows of wgmma accumulators to T and stages them in shared memory at `staged`,
// in panels `panel_bytes` apart. A thread's first row is multiplied by factor[0], its second by
// factor[1]. A caller that is short of registers reads `thread`, its threadIdx.x, again.
template <typename T, int kFloats>
__device__ __forceinline__ void stage_rows(const float (&accumulators)[kFloats],
                                           const float (&factor)[2], uint32_t staged,
                                           int panel_bytes,
                                           int thread = static_cast<int>(threadIdx.x)) {
  const int lane = thread % 32, staged_row = lane % 16;
#pragma unroll
  for (int step = 0; step < kFloats / 8; ++step) {
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float* pair = accumulators + 8 * step + 2 * w;
      words[w] = ptx::cvt_rn_x2<T>(pair[0] * factor[w % 2], pair[1] * factor[w % 2]);
    }
    const int panel = step / 4, chunk = step % 4 * 2 + lane / 16;
    ptx::stmatrix_x4(
        staged + panel * panel_bytes + staged_row * kRowBytes + (chunk ^ staged_row % 8) * 16,
        words);
  }
}

// The same, and has TMA store them from `row` on.
template <typename T, int kFloats, typename Rows>
__device__ __forceinline__ void send_rows(const float (&accumulators)[kFloats],
                                          const float (&factor)[2], uint32_t staged,
                                          int panel_bytes, const CUtensorMap& map, const Rows& rows,
                                          int row, int thread = static_cast<int>(threadIdx.x)) {
  stage_rows<T>(accumulators, factor, staged, panel_bytes, thread);
  ptx::fence_proxy_async();
  __syncwarp();
  if (thread % 32 != 0) return;
  constexpr int kPanels = (2 * kFloats + 63) / 64;
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    rows.store(map, panel * 64, row, staged + panel * panel_bytes);
  }
  ptx::cp_async_bulk_commit_group();
}

}  // namespace flashbench::kernels::sm90
