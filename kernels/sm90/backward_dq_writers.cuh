// Adds dQ to memory in the deterministic backward pass, where thread blocks add in a fixed order.
// The consumers stage dQ in shared memory and continue. The writers, the other warps of the
// producer's warpgroup, wait for the thread block's turn, have TMA add dQ to memory, wait until the
// sums are there, and pass the turn.
//
// The dQ of a step is one piece or several, each with a turn of its own. The writers take the
// pieces one after the other, so that one can wait for its sums to arrive while the next one sends.
// A buffer is free again as soon as TMA has read it.
#pragma once

#include <cstdint>

#include "kernels/backward/accumulator.cuh"
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

// For blocks of kBlockQ queries. Each of two consumers computes kConsumerColumns columns; a piece
// contains 1 / kPieces of each consumer's columns.
template <int kHeadDim, int kBlockQ, int kConsumerColumns, int kPieces, typename Delay>
struct DqWriters : Barriers<Delay> {
  using Barriers<Delay>::arrive, Barriers<Delay>::release, Barriers<Delay>::wait;

  static constexpr int kConsumers = 2;
  static constexpr int kWriters = 3;  // warps
  // As many as there is room for.
  static constexpr int kBuffers = kHeadDim == 64 ? 4 : kPieces == 1 ? 2 : 1;
  // Barriers at which writers wait for a full piece. Pieces become full in order, and a writer has
  // seen the piece `kWriters` before its own. The phase that it waits for is therefore the current
  // one or already complete.
  static constexpr int kFulls = 4;
  static_assert(kFulls > kWriters);

  // A piece has the layout of a block of dQ in global memory, with fewer columns.
  static constexpr int kPieceColumns = kHeadDim / kPieces;
  static constexpr int kPartColumns = kConsumerColumns / kPieces;  // per consumer
  static constexpr int kPartTiles = kPartColumns / 8;              // 16 queries x 8 columns each
  static constexpr int kRowTiles = kBlockQ / 16;
  static constexpr int kTileFloats = 128;
  static_assert(kPieces <= kBlockQ / backward::kTurnRows);

  struct Shared {
    alignas(128) float pieces[kBuffers][kBlockQ * kPieceColumns];
    uint64_t full[kFulls], empty[kBuffers];
  };

  // The buffer and the `full` barrier of a piece, and the parities of its phases.
  struct Place {
    unsigned buffer, full;
    uint32_t buffer_parity, full_parity;
    __device__ Place(int step, int piece) {
      const unsigned number = static_cast<unsigned>(step * kPieces + piece);
      buffer = number % kBuffers;
      buffer_parity = number / kBuffers % 2;
      full = number % kFulls;
      full_parity = number / kFulls % 2;
    }
  };

  static __device__ void initialise_barriers(Shared& shared) {
    for (uint64_t& full : shared.full) {
      ptx::mbarrier_init(ptx::shared_address(&full), 4 * kConsumers);
    }
    for (uint64_t& empty : shared.empty) ptx::mbarrier_init(ptx::shared_address(&empty), 1);
  }

  // ---- A consumer

  // Waits for room for a piece; returns the address of this consumer's part of it.
  static __device__ __forceinline__ float* room_for(Shared& shared, int consumer, int step,
                                                    int piece) {
    const Place place(step, piece);
    wait(shared.empty[place.buffer], place.buffer_parity ^ 1);
    return shared.pieces[place.buffer] + consumer * kPartTiles * kTileFloats;
  }

  // Signals that a warp's part of the piece is staged. All its lanes must have called
  // fence_proxy_async and synchronised.
  static __device__ __forceinline__ void hand_over(Shared& shared, int lane, int step, int piece) {
    release(lane, shared.full[Place(step, piece).full]);
  }

  // ---- A writer: the first thread of its warp

  static __device__ __forceinline__ void add_to_memory(float* block, const float* staged,
                                                       int piece) {
    const auto add = [](float* to, const float* from, int tiles) {
      ptx::cp_reduce_async_bulk_add_f32(to, ptx::shared_address(from),
                                        tiles * kTileFloats * static_cast<int>(sizeof(float)));
    };
    if constexpr (kPieces == 1) {
      add(block, staged, kRowTiles * kHeadDim / 8);
    } else {
#pragma unroll
      for (int row = 0; row < kRowTiles; ++row) {
#pragma unroll
        for (int consumer = 0; consumer < kConsumers; ++consumer) {
          const int column = consumer * kConsumerColumns + piece * kPartColumns;
          add(block + (row * kHeadDim + column) / 8 * kTileFloats,
              staged + (row * kPieceColumns + consumer * kPartColumns) / 8 * kTileFloats,
              kPartTiles);
        }
      }
    }
    ptx::cp_async_bulk_commit_group();
  }

  // Adds all pieces of this writer to memory, each in its turn.
  template <typename Arguments, typename Work>
  static __device__ void write(const Arguments& a, Shared& shared, const Work& work) {
    float* dq_sums = a.dq_sums;
    int* turns = a.turns;
    backward::Step step(work);
    int piece = static_cast<int>(threadIdx.x) / 32 - 1;
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      const int64_t row = backward::row_of_query(a, work, step.head, step.block * kBlockQ);
      for (; piece < kPieces; piece += kWriters) {
        const Place place(i, piece);
        int* turn = turns + row / backward::kTurnRows + piece;
        Delay::before_barrier();
        const int mine = work.turn(step.block);
        backward::wait_for_turn(turn, mine, true, [] {});
        ptx::fence_proxy_async_global();
        wait(shared.full[place.full], place.full_parity);
        add_to_memory(dq_sums + row * kHeadDim, shared.pieces[place.buffer], piece);
        ptx::cp_async_bulk_wait_group_read_0();
        arrive(shared.empty[place.buffer]);
        ptx::cp_async_bulk_wait_group_0();
        Delay::before_barrier();
        ptx::st_release_gpu(turn, mine + 1);
      }
      piece -= kPieces;
    }
  }
};

}  // namespace flashbench::kernels::sm90
