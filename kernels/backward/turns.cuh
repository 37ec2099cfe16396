// Turns at a block of dQ in the deterministic kernels, where thread blocks add in the order of
// their indices. The threads that add together synchronise in `sync`; one of them has `leads` set.
#pragma once

#include "kernels/ptx/ld.h"
#include "kernels/ptx/st.h"

namespace flashbench::kernels::backward {

// Waits for turn `mine`: all earlier thread blocks have added.
template <typename Sync>
__device__ __forceinline__ void wait_for_turn(const int* turn, int mine, bool leads,
                                              const Sync& sync) {
  if (leads) {
    while (ptx::ld_acquire_gpu(turn) != mine) {
    }
  }
  sync();
}

// Passes the turn to `next` once the additions of these threads are visible.
template <typename Sync>
__device__ __forceinline__ void pass_turn(int* turn, int next, bool leads, const Sync& sync) {
  __threadfence();
  sync();
  if (leads) ptx::st_release_gpu(turn, next);
}

}  // namespace flashbench::kernels::backward
