// The producer's warpgroup of the backward pass's main kernel for Hopper, where it computes dQ. The
// consumers hand it dS.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_dq.cuh"
#include "kernels/sm90/backward_finite.cuh"
#include "kernels/sm90/backward_loads.cuh"
#include "kernels/sm90/backward_loads_ahead.cuh"
#include "kernels/sm90/backward_products.cuh"
#include "kernels/sm90/backward_shapes.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, BackwardConfig kConfig, typename Delay>
struct BackwardDqWarpgroup : BackwardShapes<kConfig, Delay>, Barriers<Delay> {
  using Shapes = BackwardShapes<kConfig, Delay>;
  using Shapes::kHeadDim, Shapes::kBlockQ, Shapes::kBlockKv, Shapes::kStages, Shapes::kConsumers,
      Shapes::kQPanelBytes, Shapes::kKvPanelBytes, Shapes::kKvBytes, Shapes::kDsBytes,
      Shapes::kDqRows, Shapes::kDqColumns, Shapes::kDqFloats, Shapes::kDqTiles, Shapes::kTileFloats,
      Shapes::kFlags;
  using typename Shapes::Work, typename Shapes::Rows, typename Shapes::Queue,
      typename Shapes::Shared, typename Shapes::Step, typename Shapes::Block;
  using Barriers<Delay>::wait, Barriers<Delay>::release;
  using Products = BackwardProducts<T, kConfig, Delay>;
  using Part = typename Products::Part;
  using Dq = BackwardDq<T, kConfig, Delay>;

  // The first warp also loads the blocks of queries. It refills the stage of the previous block
  // once dS shows that both consumers are done with that block.
  static __device__ void load_and_sum(const BackwardArguments& a, Shared& shared,
                                      const Work& in_shared_memory) {
    // A copy in registers: each load by TMA would read shared memory again, and hold up the
    // products.
    const Work work = in_shared_memory;
    if (work.steps == 0) return;
    // The shuffle tells the compiler that the warp's index is the same in all lanes.
    const bool loads = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0) == 0;
    const bool leads = threadIdx.x == 0;
    BackwardBlockLoads<Shapes> blocks(a, shared, work);
    RingPosition<kStages> ring;
    const auto load_next = [&] {
      if (leads) {
        blocks.q(ring.stage);
        blocks.d_o(ring.stage);
      }
      __syncwarp();
      blocks.step.advance(work);
      ring.advance();
    };
    if (loads) {
      if (leads) {
        blocks.k();
        blocks.v();
      }
      __syncwarp();
      ptx::griddepcontrol_wait();
      for (int i = 0; i < min(kStages, work.steps); ++i) load_next();
    }
    Part part(0);
    Step step(work);
    wait(shared.k_full[0], 0);
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      wait(shared.ds_full[i % 2], i / 2 & 1);
      add_block(a, shared, work, part, 0, Block(a, work, step), i % 2, [&] {
        if (loads && i > 0 && i - 1 + kStages < work.steps) load_next();
      });
    }
  }

  // The same for all items of a persistent thread block, whose first warp loads. The consumers hand
  // over the dS of all steps of an item, and then its dK and dV.
  static __device__ void load_and_sum_all(const BackwardArguments& a, Shared& shared) {
    // The shuffle tells the compiler that the warp's index is the same in all lanes.
    const bool loads = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0) == 0;
    BackwardLoadsAhead<kConfig, Delay> ahead(a, shared);
    if (loads) ahead.first_item();
    Part part(0);
    RingPosition<2> results;
    unsigned done = 0;  // blocks of queries, in all items
    Work work;
    for (unsigned n = 0; Queue::next(*shared.queue, n, work); ++n) {
      const RingPlace<2> keys(n);
      if (loads) ahead.begin_item();
      wait(shared.k_full[keys.stage], keys.parity);
      Step step(work);
      for (int i = 0; i < work.steps; ++i, ++done, results.advance(), step.advance(work)) {
        wait(shared.ds_full[results.stage], results.parity);
        add_block(a, shared, work, part, keys.stage * kKvBytes, Block(a, work, step), results.stage,
                  [&] {
                    if (loads) ahead.after_result(n, i, work.steps, done);
                  });
      }
      wait(shared.ds_full[results.stage], results.parity);
      if (loads) {
        ahead.after_result(n, work.steps, work.steps, done);
        if constexpr (Work::kMaySplit) {
          work = Queue::item(*shared.queue, n);  // not kept in registers
        }
        if (!a.adds_keys) store_gradients(a, shared, results.stage, work);
      }
      release(part.lane, shared.ds_empty[results.stage]);
      results.advance();
    }
  }

 protected:
  // Adds dQ of a block of queries to memory, one part after the other, and hands the buffer of dS
  // back. K begins `keys` bytes behind its first buffer. Calls `meanwhile` during the first
  // product.
  template <typename Meanwhile>
  static __device__ __forceinline__ void add_block(const BackwardArguments& a, Shared& shared,
                                                   const Work& work, Part& part, int keys,
                                                   const Block& block, int buffer,
                                                   const Meanwhile& meanwhile) {
    const ptx::WgmmaMatrix ds = Products::Operands::of(shared, offsetof(Shared, ds), kQPanelBytes);
    const ptx::WgmmaMatrix k = Products::Operands::of(shared, offsetof(Shared, k), kKvPanelBytes);
    bool finite = true;
    if (kFlags && block.masked) {
#pragma unroll
      for (int warp = 0; warp < 4 * kConsumers; ++warp) finite &= shared.finite[buffer][warp];
    }
    if (!finite) {
      meanwhile();
#pragma unroll 1
      for (int n = 0; n < kParts; ++n) add_seen_keys(a, shared, work, part, n, keys, block, buffer);
      __syncwarp();
      release(part.lane, shared.ds_empty[buffer]);
      return;
    }
    // Positions move on during the products. Unrolled, the loop spills.
    ptx::WgmmaMatrix ds_rows = ds.advance(buffer * kDsBytes), k_columns = k.advance(keys);
    select(part, 0);
    float* tiles = Dq::accumulators(a, part, block);
#pragma unroll 1
    for (int n = 0; n < kParts; ++n) {
      float dq[kDqFloats];
      Products::issue_dq(dq, ds_rows, k_columns);
      ptx::wgmma_commit_group();
      if (n == 0) meanwhile();
      const bool wraps = n % kAcross == kAcross - 1, last = n == kParts - 1;
      float* const to = tiles;
      ds_rows = ds_rows.advance(wraps ? kDqRows * kRowBytes : 0);
      k_columns =
          k_columns.advance((wraps ? 1 - kAcross : 1) * kDqColumns * static_cast<int>(sizeof(T)));
      tiles += kDqTiles * kTileFloats;
      if (wraps) tiles += kDqRows * kHeadDim - kAcross * kDqTiles * kTileFloats;
      ptx::wgmma_wait_group<0>();
      ptx::keep_here(dq);
      if (!kFlags && block.masked) finite = __all_sync(~0u, all_finite(dq));
      if (last && finite) release(part.lane, shared.ds_empty[buffer]);
      if (kFlags || finite) {
        Dq::template add<0, kDqTiles>(to, part, dq);
      } else {
        add_seen_keys(a, shared, work, part, n, keys, block, buffer);
      }
      if (!kFlags && last && !finite) {
        __syncwarp();
        release(part.lane, shared.ds_empty[buffer]);
      }
    }
  }

  // A block of dQ is computed in parts, as large as the registers allow.
  static constexpr int kAcross = kHeadDim / kDqColumns, kParts = kBlockQ / kDqRows * kAcross;
  static __device__ __forceinline__ void select(Part& part, int n) {
    part.first_dq_row = n / kAcross * kDqRows;
    part.first_dq_column = n % kAcross * kDqColumns;
  }

  static __device__ __forceinline__ void add_seen_keys(const BackwardArguments& a, Shared& shared,
                                                       const Work& work, Part& part, int n,
                                                       int keys, const Block& block, int buffer) {
    select(part, n);
    Dq::add_seen_keys(a, shared.k + keys, work, part, block, shared.ds[buffer]);
  }

  // Stores dK and dV, which the consumers have staged in a buffer of dS (see
  // BackwardConsumer::consume_all_in_turns). Returns once they have been read.
  static __device__ __forceinline__ void store_gradients(const BackwardArguments& a,
                                                         const Shared& shared, int buffer,
                                                         const Work& work) {
    if (threadIdx.x == 0) {
      const auto dv = Rows{a}.key_gradients(work, a.dv_steps);
      const auto dk = Rows{a}.key_gradients(work, a.dk_steps);
#pragma unroll 1
      for (int row = 0; row < kBlockKv; row += kWarpRows) {
        if (!Shapes::stores(shared, buffer, row)) continue;
        const uint32_t from = ptx::shared_address(shared.ds[buffer]) +
                              row / kConsumerRows * kQPanelBytes + row % kConsumerRows * kRowBytes;
        dv.store(a.dv[0], 0, work.first_key + row, from);
        dk.store(a.dk[0], 0, work.first_key + row, from + kConsumerRows * kRowBytes);
      }
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read();
    }
    __syncwarp();
  }
};

}  // namespace flashbench::kernels::sm90
