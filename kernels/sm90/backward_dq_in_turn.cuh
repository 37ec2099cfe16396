// The producer's warpgroup of the deterministic backward kernel at head_dim 64: it computes dQ, and
// adds it to memory in the order of the thread blocks' keys.
//
// Each warp adds its rows by itself, 16 of each half of a block of queries. It stages them in
// shared memory, waits for the thread block's turn at these rows, has TMA add them, waits until the
// sums are in memory, and passes the turn. All this goes on while products of later halves run, and
// while the warp waits for the consumers:
//
//   product  first part of half i                     | second part of half i
//   warp     sums of half i - 2 are there: passes the | looks whose turn it is at half i
//            turn; waits for its own, adds half i - 1  |
//
// The first half of a block is staged in a place of its own, the second half in the rows of dS from
// which the first half was computed. So dS is handed back once TMA has read the second half.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backward/backward.h"
#include "kernels/ptx/barrier.h"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/cp_reduce_async_bulk.h"
#include "kernels/ptx/ld.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/st.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/backward_dq_warpgroup.cuh"

namespace flashbench::kernels::sm90 {

// All functions are called by whole warps.
template <typename T, BackwardConfig kConfig, typename Delay>
struct BackwardDqInTurn : BackwardDqWarpgroup<T, kConfig, Delay> {
  using Warpgroup = BackwardDqWarpgroup<T, kConfig, Delay>;
  using Shapes = BackwardShapes<kConfig, Delay>;
  using Shapes::kHeadDim, Shapes::kStages, Shapes::kConsumers, Shapes::kQPanelBytes,
      Shapes::kKvPanelBytes, Shapes::kKvBytes, Shapes::kDsBytes, Shapes::kDqRows,
      Shapes::kDqColumns, Shapes::kDqFloats, Shapes::kTileFloats;
  using typename Shapes::Work, typename Shapes::Queue, typename Shapes::Shared,
      typename Shapes::Block, typename Shapes::LoadedBlock;
  using Barriers<Delay>::wait, Barriers<Delay>::release, Barriers<Delay>::is_full;
  using typename Warpgroup::Products, typename Warpgroup::Part, typename Warpgroup::Dq;

  // As in BackwardDqWarpgroup.
  static __device__ void load_and_sum_all(const BackwardArguments& a, Shared& shared) {
    // The shuffle tells the compiler that the warp's index is the same in all lanes.
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    const bool loads = warp == 0;
    BackwardLoadsAhead<kConfig, Delay> ahead(a, shared);
    if (loads) ahead.first_item();
    State state{Part(0), warp};
    RingPosition<2> results;
    int stage = 0;
    unsigned done = 0;  // blocks of queries, in all items
    Work work;
    for (unsigned n = 0; Queue::next(*shared.queue, n, work); ++n) {
      const RingPlace<2> keys(n);
      if (loads) ahead.begin_item();
      wait(shared.k_full[keys.stage], keys.parity);
      for (int i = 0; i < work.steps; ++i, ++done, results.advance()) {
        const uint64_t& full = shared.ds_full[results.stage];
        if (state.second_half == State::kStaged &&
            !__all_sync(~0u, is_full(full, results.parity))) {
          add_second_half(a, shared, state, 1 - results.stage);
        }
        if (state.second_half == State::kAdded && !__all_sync(~0u, is_full(full, results.parity))) {
          finish(a, shared, state, 1 - results.stage);
        }
        wait(full, results.parity);
        if (loads) ahead.pass_on_next(n);
        const LoadedBlock loaded = shared.blocks[stage];
        const Block block(a, work, __shfl_sync(~0u, loaded.query, 0), 0);
        if (++stage == kStages) stage = 0;
        add_block(a, shared, work, state, keys.stage * kKvBytes, block,
                  static_cast<unsigned>(__shfl_sync(~0u, loaded.tile, 0)),
                  __shfl_sync(~0u, loaded.turn, 0), results.stage, [&] {
                    if (loads) ahead.after_result(n, i, work.steps, done);
                  });
      }
      finish_all(a, shared, state, 1 - results.stage);
      wait(shared.ds_full[results.stage], results.parity);
      if (loads) {
        ahead.pass_on_next(n);
        // The first block of the next item may not have read its D yet.
        ahead.after_result(n, work.steps, work.steps, done - 1);
        if (!a.adds_keys) Warpgroup::store_gradients(a, shared, results.stage, work);
      }
      release(state.part.lane, shared.ds_empty[results.stage]);
      results.advance();
    }
  }

 private:
  static constexpr int kHalves = 2;  // of a block of queries, each in two parts of the columns
  static constexpr int kHalfFloats = kWarpRows * kHeadDim;
  static constexpr int kHalfBytes = kHalfFloats * static_cast<int>(sizeof(float));
  static constexpr int kHalfTurns = kDqRows / backward::kTurnRows;
  static constexpr int kPartBytes = kHalfBytes / 2;
  static constexpr int kTileBytes = kTileFloats * static_cast<int>(sizeof(float));
  static_assert(kWarpRows == backward::kTurnRows && 2 * kDqColumns == kHeadDim);
  static_assert(4 * kHalfBytes == 2 * kDqRows * kRowBytes);  // the second half fits the rows of dS

  static constexpr int kBarrier = 4;  // of this warpgroup; see BackwardConsumer for the others

  struct State {
    Part part;
    int warp;
    uint32_t half_read = 0;                               // parity of the barrier
    enum { kNone, kStaged, kAdded } second_half = kNone;  // of the block before
    unsigned tile = 0;  // of 16 rows: the first half of that block
    int mine = 0;       // the turn of this thread block there
    int seen = -1;      // whose turn it was at the half that is added next
  };

  // Turns are looked at and passed without a memory order. TMA adds in the L2 cache, where the
  // turns are, too: a thread block passes the turn after its sums have arrived there, and TMA adds
  // after the turn has been seen. Acquire and release would make the warp wait for all of its
  // accesses.
  static __device__ __forceinline__ int look(const int* turn) {
    return static_cast<int>(ptx::ld_relaxed_gpu(reinterpret_cast<const unsigned*>(turn)));
  }
  static __device__ __forceinline__ void pass_turn(const BackwardArguments& a, const State& state,
                                                   unsigned tile, int mine) {
    Delay::before_barrier();
    if (state.part.lane == 0) {
      ptx::st_relaxed_gpu(reinterpret_cast<unsigned*>(a.turns + tile),
                          static_cast<unsigned>(mine + 1));
    }
    __syncwarp();
  }

  static __device__ __forceinline__ uint32_t first_half(const Shared& shared, const State& state) {
    return ptx::shared_address(shared.dq_half) + state.warp * kHalfBytes;
  }
  static __device__ __forceinline__ uint32_t second_half(const Shared& shared, const State& state,
                                                         int buffer) {
    return ptx::shared_address(shared.ds[buffer]) + state.warp / 2 * kQPanelBytes +
           state.warp % 2 * kHalfBytes;
  }

  // Adds a staged half in its turn.
  static __device__ __forceinline__ void add_half(const BackwardArguments& a, const State& state,
                                                  unsigned tile, uint32_t staged, int mine) {
    ptx::fence_proxy_async();
    Delay::before_barrier();
    int seen = state.seen;
    while (!__all_sync(~0u, seen == mine)) seen = look(a.turns + tile);
    __syncwarp();
    if (state.part.lane == 0) {
      ptx::cp_reduce_async_bulk_add_f32(a.dq_sums + tile * uint64_t{kHalfFloats}, staged,
                                        kHalfBytes);
      ptx::cp_async_bulk_commit_group();
    }
    __syncwarp();
  }
  static __device__ __forceinline__ void wait_for_sums() {
    ptx::cp_async_bulk_wait_group_0();
    __syncwarp();
  }

  // Passes the turn at the first half of the block before, and adds the second half, which is in
  // the place of a dS.
  static __device__ __forceinline__ void add_second_half(const BackwardArguments& a, Shared& shared,
                                                         State& state, int buffer) {
    wait_for_sums();
    pass_turn(a, state, state.tile, state.mine);
    add_half(a, state, state.tile + kHalfTurns, second_half(shared, state, buffer), state.mine);
    state.second_half = State::kAdded;
  }
  // Passes the turn there, too, and hands the buffer of dS back.
  static __device__ __forceinline__ void finish(const BackwardArguments& a, Shared& shared,
                                                State& state, int buffer) {
    wait_for_sums();
    release(state.part.lane, shared.ds_empty[buffer]);
    pass_turn(a, state, state.tile + kHalfTurns, state.mine);
    state.second_half = State::kNone;
  }
  static __device__ __forceinline__ void finish_all(const BackwardArguments& a, Shared& shared,
                                                    State& state, int buffer) {
    if (state.second_half == State::kStaged) add_second_half(a, shared, state, buffer);
    if (state.second_half == State::kAdded) finish(a, shared, state, buffer);
  }

  // Computes dQ of a block of queries, which begins with tile `first_tile`, and adds it. Its second
  // half remains to be added. K begins `keys` bytes behind its first buffer. Calls `meanwhile`
  // during the first product.
  template <typename Meanwhile>
  static __device__ __forceinline__ void add_block(const BackwardArguments& a, Shared& shared,
                                                   const Work& work, State& state, int keys,
                                                   const Block& block, unsigned first_tile,
                                                   int mine, int buffer,
                                                   const Meanwhile& meanwhile) {
    const ptx::WgmmaMatrix ds = Products::Operands::of(shared, offsetof(Shared, ds), kQPanelBytes);
    const ptx::WgmmaMatrix k = Products::Operands::of(shared, offsetof(Shared, k), kKvPanelBytes);
    const int lane = state.part.lane;
    const unsigned tile = first_tile + state.warp;
    bool finite = true;
    if (block.masked) {
#pragma unroll
      for (int warp = 0; warp < 4 * kConsumers; ++warp) finite &= shared.finite[buffer][warp];
    }
    if (!finite) {
      finish_all(a, shared, state, 1 - buffer);
      meanwhile();
      add_seen_keys(a, shared, work, state, keys, block, tile, mine, buffer);
      return;
    }
    // Positions move on during the products. Unrolled, the loop spills.
    ptx::WgmmaMatrix ds_rows = ds.advance(buffer * kDsBytes), k_columns = k.advance(keys);
    uint32_t next = first_half(shared, state) + lane * 16;
#pragma unroll 1
    for (int n = 0; n < 2 * kHalves; ++n) {
      float dq[kDqFloats];
      Products::issue_dq(dq, ds_rows, k_columns);
      ptx::wgmma_commit_group();
      const bool second_part = n % 2 == 1;
      if (second_part) {
        state.seen = look(a.turns + tile + n / 2 * kHalfTurns);
      } else if (n == 0) {
        if (state.second_half == State::kStaged) add_second_half(a, shared, state, 1 - buffer);
        meanwhile();
      } else {
        release(lane, shared.ds_half_read[0]);
        if (state.second_half == State::kAdded) finish(a, shared, state, 1 - buffer);
        add_half(a, state, tile, first_half(shared, state), mine);
      }
      uint32_t staged = next;
      next = n == 1 ? second_half(shared, state, buffer) + lane * 16 : next + kPartBytes;
      ds_rows = ds_rows.advance(second_part ? kDqRows * kRowBytes : 0);
      k_columns =
          k_columns.advance((second_part ? -1 : 1) * kDqColumns * static_cast<int>(sizeof(T)));
      asm volatile("" : "+r"(staged));  // computes it here
      ptx::wgmma_wait_group<0>();
      ptx::keep_here(dq);
      // The other warps' rows of dS take this warp's second half.
      if (n == 2) wait(shared.ds_half_read[0], state.half_read);
#pragma unroll
      for (int j = 0; j < kDqFloats; j += 4) {
        ptx::st_shared_v4(staged + j / 4 * kTileBytes, dq[j], dq[j + 1], dq[j + 2], dq[j + 3]);
      }
    }
    state.half_read ^= 1;
    state.second_half = State::kStaged;
    state.tile = tile;
    state.mine = mine;
  }

  // The same where K is not finite: key by key.
  static __device__ __forceinline__ void add_seen_keys(const BackwardArguments& a, Shared& shared,
                                                       const Work& work, State& state, int keys,
                                                       const Block& block, unsigned tile, int mine,
                                                       int buffer) {
#pragma unroll 1
    for (int half = 0; half < kHalves; ++half) {
      state.part.first_dq_row = half * kDqRows;
      Dq::stage_seen_keys(a, shared.dq_half[state.warp], shared.k + keys, work, state.part, block,
                          shared.ds[buffer]);
      const unsigned of_half = tile + half * kHalfTurns;
      state.seen = look(a.turns + of_half);
      add_half(a, state, of_half, first_half(shared, state), mine);
      wait_for_sums();
      pass_turn(a, state, of_half, mine);
    }
    Delay::before_barrier();
    ptx::barrier_sync(kBarrier, 128);  // all have read what is loaded with a block of queries
    release(state.part.lane, shared.ds_empty[buffer]);
  }
};

}  // namespace flashbench::kernels::sm90
