// Turns at dQ in the deterministic backward kernels whose warps add dQ from registers: thread
// blocks add to a block of dQ in the order of their keys.
//
// A warp adds in the thread block's turn, and goes on. Its additions arrive in memory some 2,000
// clocks later, longer than the products that could hide a fence. So a thread that has nothing else
// to do waits for them, and passes the turn. Its fence covers what the warps did before they handed
// the turn on, since it has waited for that.
#pragma once

#include <cstdint>

#include "kernels/backward/backward.h"
#include "kernels/backward/work.cuh"
#include "kernels/ptx/fence.h"
#include "kernels/ptx/ld.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/st.h"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename Delay>
struct DqTurns : Barriers<Delay> {
  using Barriers<Delay>::arrive, Barriers<Delay>::release, Barriers<Delay>::wait;

  using Place = RingPlace<2>;  // of the turns that are handed on

  struct Shared {
    uint64_t full[2], empty[2];
  };

  // `warps` add to each block.
  static __device__ void initialise_barriers(Shared& shared, int warps) {
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.full[i]), warps);
      ptx::mbarrier_init(ptx::shared_address(&shared.empty[i]), 1);
    }
  }

  // The turn at part `part` of the columns of the block whose first row in the workspace is `row`.
  template <typename Arguments>
  static __device__ __forceinline__ int* at(const Arguments& a, int64_t row, int part) {
    return a.turns + row / backward::kTurnRows + part;
  }
  static __device__ __forceinline__ int look(const int* turn) {
    return static_cast<int>(ptx::ld_relaxed_gpu(reinterpret_cast<const unsigned*>(turn)));
  }

  // Hands the turn at the i-th block on, once a warp has added to it. Called by the whole warp.
  static __device__ __forceinline__ void hand_on(Shared& shared, int i) {
    const Place place(i);
    wait(shared.empty[place.stage], place.parity ^ 1);
    __syncwarp();  // all lanes have added
    release(static_cast<int>(threadIdx.x) % 32, shared.full[place.stage]);
  }

  // Passes the turn at a part of each block of the work, when all warps have handed it on and their
  // sums are in memory. One thread does so.
  template <int kBlockQ, typename Arguments, typename Work>
  static __device__ void pass_all(const Arguments& a, Shared& shared, const Work& work, int part) {
    backward::Step step(work);
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      const Place place(i);
      const int64_t row = backward::row_of_query(a, work, step.head, step.block * kBlockQ);
      wait(shared.full[place.stage], place.parity);
      arrive(shared.empty[place.stage]);
      ptx::fence_acq_rel_gpu();
      ptx::st_relaxed_gpu(reinterpret_cast<unsigned*>(at(a, row, part)),
                          static_cast<unsigned>(work.turn(step.block) + 1));
    }
  }
};

}  // namespace flashbench::kernels::sm90
