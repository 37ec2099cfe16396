// Turns at a block of dQ: where sums have a fixed order, thread blocks add to it in that of their
// numbers. The threads that add together meet in `sync`, and one of them `leads`.
#pragma once

#include "kernels/ptx/ld.h"
#include "kernels/ptx/st.h"

namespace flashbench::kernels::sm80 {

// Waits until it is the turn of `mine`: all before have added.
template <typename Sync>
__device__ __forceinline__ void wait_for_turn(const int* turn, int mine, bool leads,
                                              const Sync& sync) {
  if (leads) {
    while (ptx::ld_acquire_gpu(turn) != mine) {
    }
  }
  sync();
}

// Makes it the turn of `next`, once all that these threads have added is there.
template <typename Sync>
__device__ __forceinline__ void pass_turn(int* turn, int next, bool leads, const Sync& sync) {
  __threadfence();
  sync();
  if (leads) ptx::st_release_gpu(turn, next);
}

}  // namespace flashbench::kernels::sm80
