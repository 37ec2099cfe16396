// Adds dQ to memory in the deterministic backward pass, where thread blocks add in a fixed order.
// The consumers stage dQ in shared memory and continue. The writers, the other warps of the
// producer's warpgroup, wait for the thread block's turn, have TMA add dQ to memory, wait until the
// sums are there, and pass the turn.
//
// The writers take the blocks one after the other, so that one can wait for its sums to arrive
// while the next one sends. A buffer is free again as soon as TMA has read it.
#pragma once

#include <cstdint>

#include "kernels/backward/backward.h"
#include "kernels/backward/turns.cuh"
#include "kernels/backward/work.cuh"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/cp_reduce_async_bulk.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/st.h"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// For blocks of kBlockQ queries, staged by two consumers.
template <int kHeadDim, int kBlockQ, typename Delay>
struct DqWriters : Barriers<Delay> {
  using Barriers<Delay>::arrive, Barriers<Delay>::release, Barriers<Delay>::wait;

  static constexpr int kConsumers = 2;
  static constexpr int kWriters = 3;                       // warps
  static constexpr int kBuffers = kHeadDim == 64 ? 4 : 2;  // as many as there is room for
  // Barriers at which writers wait for a staged block. Blocks are staged in order, and a writer has
  // seen the one `kWriters` before its own. The phase that it waits for is therefore the current
  // one or already complete.
  static constexpr int kFulls = 4;
  static_assert(kFulls > kWriters);

  struct Shared {
    // Each has the layout of a block of dQ in global memory.
    alignas(128) float blocks[kBuffers][kBlockQ * kHeadDim];
    uint64_t full[kFulls], empty[kBuffers];
  };

  static __device__ void initialise_barriers(Shared& shared) {
    for (uint64_t& full : shared.full) {
      ptx::mbarrier_init(ptx::shared_address(&full), 4 * kConsumers);
    }
    for (uint64_t& empty : shared.empty) ptx::mbarrier_init(ptx::shared_address(&empty), 1);
  }

  // ---- A consumer

  // Waits for room for a block.
  static __device__ __forceinline__ float* room_for(Shared& shared, int step) {
    const RingPlace<kBuffers> at(step);
    wait(shared.empty[at.stage], at.parity ^ 1);
    return shared.blocks[at.stage];
  }

  // Signals that a warp's part of the block is staged. All its lanes must have called
  // fence_proxy_async and synchronised.
  static __device__ __forceinline__ void hand_over(Shared& shared, int lane, int step) {
    release(lane, shared.full[RingPlace<kFulls>(step).stage]);
  }

  // ---- A writer: the first thread of its warp

  // Adds all blocks of this writer to memory, each in its turn.
  template <typename Arguments, typename Work>
  static __device__ void write(const Arguments& a, Shared& shared, const Work& work) {
    const int writer = static_cast<int>(threadIdx.x) / 32 - 1;
    backward::Step step(work);
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      if (i % kWriters != writer) continue;
      const int64_t row = backward::row_of_query(a, work, step.head, step.block * kBlockQ);
      const RingPlace<kBuffers> at(i);
      const RingPlace<kFulls> staged(i);
      int* turn = a.turns + row / backward::kTurnRows;
      const int mine = work.turn(step.block);
      Delay::before_barrier();
      backward::wait_for_turn(turn, mine, true, [] {});
      ptx::fence_proxy_async_global();
      wait(shared.full[staged.stage], staged.parity);
      ptx::cp_reduce_async_bulk_add_f32(a.dq_sums + row * kHeadDim,
                                        ptx::shared_address(shared.blocks[at.stage]),
                                        sizeof shared.blocks[0]);
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read();
      arrive(shared.empty[at.stage]);
      ptx::cp_async_bulk_wait_group_0();
      Delay::before_barrier();
      ptx::st_release_gpu(turn, mine + 1);
    }
  }
};

}  // namespace flashbench::kernels::sm90
