// A consumer of the backward pass's main kernel for Hopper: loops over the blocks of queries, and
// sums dK and dV of its keys.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/backward/accumulator.cuh"
#include "kernels/backward/work.cuh"
#include "kernels/ptx/barrier.h"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/tid.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_dq.cuh"
#include "kernels/sm90/backward_dq_staging.cuh"
#include "kernels/sm90/backward_finite.cuh"
#include "kernels/sm90/backward_pieces.cuh"
#include "kernels/sm90/backward_products.cuh"
#include "kernels/sm90/backward_scores.cuh"
#include "kernels/sm90/backward_shapes.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, BackwardConfig kConfig, typename Delay>
struct BackwardConsumer : BackwardShapes<kConfig, Delay>, Barriers<Delay> {
  using Shapes = BackwardShapes<kConfig, Delay>;
  using Shapes::kHeadDim, Shapes::kStages, Shapes::kDqWarpgroup, Shapes::kHasWriters,
      Shapes::kConsumerThreads, Shapes::kKvPanelBytes, Shapes::kKvBytes, Shapes::kQPanelBytes,
      Shapes::kQBytes, Shapes::kDsBytes, Shapes::kSFloats, Shapes::kKeyFloats, Shapes::kSteps,
      Shapes::kDqFloats, Shapes::kDqTiles, Shapes::kTileFloats, Shapes::kByRequest, Shapes::kFlags,
      Shapes::kWarps, Shapes::kSumsColumns, Shapes::kDqInTurn, Shapes::kVBuffers,
      Shapes::kDqTransposed, Shapes::d_stage;
  using typename Shapes::Writers, typename Shapes::Queue, typename Shapes::Work,
      typename Shapes::Rows, typename Shapes::Shared, typename Shapes::Step, typename Shapes::Block;
  using Barriers<Delay>::wait, Barriers<Delay>::release;
  using Products = BackwardProducts<T, kConfig, Delay>;
  using Scores = BackwardScores<T, kConfig, Delay>;
  using Dq = BackwardDq<T, kConfig, Delay>;
  using DqStaging = BackwardDqStaging<T, kConfig, Delay>;
  using Keys = typename Products::Keys;
  using Operands = typename Products::Operands;
  using Part = typename Products::Part;
  using Visible = typename Scores::Visible;
  using Statistic = typename Scores::InSharedMemory;
  using StatisticInRegisters = typename Scores::InRegisters;

  // Named barriers: one for all consumers, and one for each consumer's turn (add its index).
  static constexpr int kBarrier = 1, kTurnBarrier = 2;

  // Loops over all blocks of queries: sums dK and dV of this consumer's keys, and computes its
  // columns of dQ for the writers.
  static __device__ __forceinline__ void sum_half_of_keys(const BackwardArguments& a,
                                                          Shared& shared, const Work& work,
                                                          const Part& part, float (&dk)[kKeyFloats],
                                                          float (&dv)[kKeyFloats]) {
    const Operands operands(shared, part);
    float s[kSFloats], dp[kSFloats], dq[kDqFloats];
    uint32_t p[kSteps][4], ds[kSteps][4];
    RingPosition<kStages> ring;
    Step step(work);
    wait(shared.k_full[0], 0);
    const Keys k_rows = Products::left_operand(operands.k_rows, shared.k, part.warp_key);
    wait(shared.v_full[0], 0);
    const Keys v_rows = Products::left_operand(operands.v_rows, shared.v, part.warp_key);
    for (int i = 0; i < work.steps; ++i, ring.advance(), step.advance(work)) {
      const int stage = ring.stage, buffer = i % 2;
      const Block block(a, work, step);

      wait(shared.q_full[stage], ring.parity);
      Products::issue_transposed(s, k_rows, operands.q.advance(stage * kQBytes));
      ptx::wgmma_commit_group();
      wait(shared.d_o_full[stage], ring.parity);
      Products::issue_transposed(dp, v_rows, operands.d_o.advance(stage * kQBytes));
      ptx::wgmma_commit_group();

      ptx::wgmma_wait_group<1>();  // S
      ptx::keep_here(s);
      bool finite = !block.masked || all_finite(s);
      Scores::exponentiate(s, Statistic{shared.logsumexp[stage], part.first_query}, a.scale_log2);
      if (block.masked) Visible(a, work, part, block).select(s);
      Products::round(s, p);
      Products::issue_sum(dv, p, operands.d_o.advance(stage * kQBytes));
      ptx::wgmma_commit_group();

      ptx::wgmma_wait_group<1>();  // dP
      ptx::keep_here(dp);
      Scores::multiply_by(s, dp, Statistic{shared.d[stage], part.first_query});
      if (block.masked) Visible(a, work, part, block).select(dp);
      Products::round(dp, ds);
      Products::store_operand(ds, shared.ds[buffer], part);
      ptx::fence_proxy_async();
      Delay::before_barrier();
      finite = ptx::barrier_and(kBarrier, kConsumerThreads, finite);
      if (i > 0) {  // after the fence of dS
        Writers::hand_over(*shared.dq_writers, part.lane, i - 1);
      }

      Products::issue_dq(dq, operands.ds.advance(buffer * kDsBytes), operands.k_columns);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();  // dV, whose operand P takes registers
      release(part.lane, shared.d_o_empty[stage]);
      Products::issue_sum(dk, ds, operands.q.advance(stage * kQBytes));
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();  // dQ
      ptx::keep_here(dq);
      if (finite) {
        Dq::stage(shared, part, i, dq);
      } else {
        Dq::stage_seen_keys(a, shared, work, part, block, i, shared.ds[buffer]);
      }
      ptx::wgmma_wait_group<0>();
      release(part.lane, shared.q_empty[stage]);
    }
    Dq::hand_over(shared, part, work.steps - 1);
  }

  // Tells the warps that compute or add dQ whether this warp's scores of a block are finite.
  static __device__ __forceinline__ void tell_finite(Shared& shared, const Part& part, int buffer,
                                                     bool finite) {
    finite = __all_sync(~0u, finite);
    if (part.lane == 0) shared.finite[buffer][4 * part.consumer + part.warp] = finite;
  }

  // From S and dP of a block, in flight, to dS in shared memory, of both consumers, and dV in
  // flight. Returns false if dQ has to be computed key by key (see backward_finite.cuh), unless
  // this is left to the warp that adds it.
  static __device__ __forceinline__ bool store_ds_and_issue_dv(
      const BackwardArguments& a, Shared& shared, const Work& work, const Part& part,
      const Operands& operands, const Block& block, int stage, const StatisticInRegisters& l,
      float (&s)[kSFloats], float (&dp)[kSFloats], uint32_t (&ds)[kSteps][4],
      float (&dv)[kKeyFloats]) {
    ptx::wgmma_wait_group<1>();  // S
    ptx::keep_here(s);
    const bool finite = !block.hides || all_finite(s);
    if constexpr (kDqTransposed) {
      if (block.hides) tell_finite(shared, part, stage, finite);
    }
    Scores::exponentiate(s, l, a.scale_log2);
    // Of keys that do not exist, K and V are 0 unless another request's follow, and nothing reads
    // dV: only their dS has to be 0, lest dQ gets the NaN of 0 * infinity.
    if (kByRequest ? block.masked : block.hides || block.is_partial) {
      Visible(a, work, part, block).select(s);
    }
    const StatisticInRegisters d(Statistic{shared.d[stage], part.first_query});

    ptx::wgmma_wait_group<0>();  // dP
    ptx::keep_here(dp);
    const int end = work.key_end(a) - work.first_key;  // of the keys that exist
    const auto store_ds = [&](bool masked) {
      Scores::multiply_by(s, dp, d);
      if (masked && block.hides) Visible(a, work, part, block).select(dp);
      Products::round(dp, ds);
      if (masked && !kByRequest) Products::clear_missing_keys(ds, end, part);
      Products::store_operand(ds, shared.ds[stage], part);
    };
    // Code of its own for each: where both meet before the stores, ptxas begins none earlier. A
    // query that does not exist, and by request a key, needs no mask here: its P is 0. Its dS can
    // only be NaN where dK of the key or dQ of the query is so anyway, because V, or dO and D, are
    // not finite.
    if (block.hides || (!kByRequest && end < Shapes::kBlockKv)) {
      store_ds(true);
    } else {
      store_ds(false);
    }
    uint32_t p[kSteps][4];
    Products::round(s, p);
    Products::issue_sum(dv, p, operands.d_o.advance(stage * kQBytes));
    ptx::wgmma_commit_group();
    ptx::fence_proxy_async();
    Delay::before_barrier();
    if constexpr (!kDqTransposed) return ptx::barrier_and(kBarrier, kConsumerThreads, finite);
    ptx::barrier_sync(kBarrier, kConsumerThreads);
    return true;
  }

  // The same where this warp adds dQ to memory, in halves. K and V are the n-th; `ring` is the
  // position of Q and dO.
  //
  // Additions to memory take long to issue, and whatever goes through shared memory waits behind
  // them: loads, stores and tests of barriers. A block's dQ is therefore added in two halves, one
  // while dK is computed, the other while S of the next block is. What comes next is read before.
  // `kOwnDqColumns`: the columns of dQ that this consumer computes.
  template <int kOwnDqColumns>
  static __device__ __forceinline__ void sum_half_of_keys_adding_in_halves(
      const BackwardArguments& a, Shared& shared, const Work& work, const Part& part, unsigned n,
      RingPosition<kStages>& ring, float (&dk)[kKeyFloats], float (&dv)[kKeyFloats]) {
    static_assert(kStages == 2);
    constexpr int kTiles = kOwnDqColumns / 8, kHalfFloats = kOwnDqColumns / 4;
    const Operands operands(shared, part, n);
    float s[kSFloats], dp[kSFloats], dq[2 * kHalfFloats], second_half[kHalfFloats];
    uint32_t ds[kSteps][4];
    float* tiles = nullptr;  // of the block before
    bool has_second_half = false;
    const float minus_zero = a.parts > 0 ? -0.0f : 0.0f;  // always -0; see second_half
    Step step(work);
    wait(shared.q_full[ring.stage], ring.parity);
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      const int stage = ring.stage;  // of Q, dO and dS
      const Block block(a, work, step);

      Products::issue_transposed(s, operands.k_rows, operands.q.advance(stage * kQBytes));
      ptx::wgmma_commit_group();
      const StatisticInRegisters l(Statistic{shared.logsumexp[stage], part.first_query});
      wait(shared.d_o_full[stage], ring.parity);
      if (has_second_half) Dq::template add<kTiles / 2, kTiles>(tiles, part, second_half);
      Products::issue_transposed(dp, operands.v_rows, operands.d_o.advance(stage * kQBytes));
      ptx::wgmma_commit_group();

      const bool finite =
          store_ds_and_issue_dv(a, shared, work, part, operands, block, stage, l, s, dp, ds, dv);

      Products::issue_dq(dq, operands.ds.advance(stage * kDsBytes), operands.k_columns);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();  // dV
      release(part.lane, shared.d_o_empty[stage]);
      Products::issue_sum(dk, ds, operands.q.advance(stage * kQBytes));
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();  // dQ
      ptx::keep_here(dq);
      tiles = Dq::accumulators(a, part, block);
      has_second_half = finite;
      if (!finite) {
        Dq::add_seen_keys(a, shared.k + n % 2 * kKvBytes, work, part, block, shared.ds[stage]);
      }
      ring.advance();
      if (i + 1 < work.steps) wait(shared.q_full[ring.stage], ring.parity);
      if (finite) Dq::template add<0, kTiles / 2>(tiles, part, dq);
      ptx::wgmma_wait_group<0>();
      release(part.lane, shared.q_empty[stage]);
      // Out of dQ's registers: to ptxas they are in use until the next wait for products. Adding -0
      // changes no value, and is no copy that ptxas would remove.
#pragma unroll
      for (int x = 0; x < kHalfFloats; ++x) second_half[x] = dq[kHalfFloats + x] + minus_zero;
    }
    if (has_second_half) Dq::template add<kTiles / 2, kTiles>(tiles, part, second_half);
  }

  // The same where consumers stage dQ^T for the warp that adds it to memory. Between two blocks,
  // when no product runs, a consumer only passes Q on and issues S: the operands are computed once,
  // and the next Q is awaited before dK is.
  static __device__ __forceinline__ void sum_half_of_keys_staging_dq(
      const BackwardArguments& a, Shared& shared, const Work& work, const Part& part, unsigned n,
      RingPosition<kStages>& ring, float (&dk)[kKeyFloats], float (&dv)[kKeyFloats]) {
    static_assert(kStages == 2);
    const Operands operands = Operands(shared, part, n).computed_here();
    float s[kSFloats], dp[kSFloats], dq[kSFloats];
    uint32_t ds[kSteps][4];
    Step step(work);
    wait(shared.q_full[ring.stage], ring.parity);
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      const int stage = ring.stage;  // of Q, dO and dS
      const Block block(a, work, step);

      Products::issue_transposed(s, operands.k_rows, operands.q.advance(stage * kQBytes));
      ptx::wgmma_commit_group();
      const StatisticInRegisters l(Statistic{shared.logsumexp[stage], part.first_query});
      wait(shared.d_o_full[stage], ring.parity);
      Products::issue_transposed(dp, operands.v_rows, operands.d_o.advance(stage * kQBytes));
      ptx::wgmma_commit_group();

      store_ds_and_issue_dv(a, shared, work, part, operands, block, stage, l, s, dp, ds, dv);

      Products::issue_dq(dq, operands.ds.advance(stage * kDsBytes), operands.k_columns);
      ptx::wgmma_commit_group();
      if (i + 1 == work.steps) release(part.lane, shared.v_empty[0]);
      ptx::wgmma_wait_group<1>();  // dV
      release(part.lane, shared.d_o_empty[stage]);
      Products::issue_sum(dk, ds, operands.q.advance(stage * kQBytes));
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();  // dQ
      ptx::keep_here(dq);
      DqStaging::await_room(part.consumer);
      DqStaging::stage(shared, part.consumer, part.warp, part.lane, dq);
      DqStaging::hand_over(part.consumer);
      ring.advance();
      if (i + 1 < work.steps) wait(shared.q_full[ring.stage], ring.parity);
      ptx::wgmma_wait_group<0>();  // dK
      release(part.lane, shared.q_empty[stage]);
    }
  }

  // The consumers take turns to issue products: one computes exponentials while the tensor cores
  // work for the other. Consumer 0 has the first turn.
  static __device__ __forceinline__ void begin_turns(const Part& part) {
    if (part.consumer == 1) pass_turn(part);
  }
  static __device__ __forceinline__ void end_turns(const Part& part) {
    if (part.consumer == 0) await_turn(part);
  }
  static __device__ __forceinline__ void await_turn(const Part& part) {
    Delay::before_barrier();
    ptx::barrier_sync(kTurnBarrier + part.consumer, kConsumerThreads);
  }
  static __device__ __forceinline__ void pass_turn(const Part& part) {
    Delay::before_barrier();
    ptx::barrier_arrive(kTurnBarrier + 1 - part.consumer, kConsumerThreads);
  }

  // The positions of a consumer that takes turns: of Q and dO, and of what it hands over.
  struct Rings {
    RingPosition<kStages> queries;
    RingPosition<2> results;
  };

  // The block of queries whose description comes with Q.
  static __device__ __forceinline__ Block loaded_block(const BackwardArguments& a, Shared& shared,
                                                       const Work& work,
                                                       const RingPosition<kStages>& ring) {
    wait(shared.q_full[ring.stage], ring.parity);
    return Block(a, work, __shfl_sync(~0u, shared.blocks[ring.stage].query, 0), 0);
  }

  // Loops over all blocks of queries: sums dK and dV of this consumer's keys, and hands dS to the
  // warpgroup that computes dQ. K and V are the n-th.
  static __device__ __forceinline__ void sum_half_of_keys_in_turns(
      const BackwardArguments& a, Shared& shared, const Work& work, const Part& part, unsigned n,
      Rings& rings, float (&dk)[kKeyFloats], float (&dv)[kKeyFloats]) {
    const Operands operands =
        kDqInTurn ? Operands(shared, part, n) : Operands(shared, part, n).computed_here();
    float s[kSFloats], dp[kSFloats];
    uint32_t p[kSteps][4], ds[kSteps][4];
    auto& [ring, results] = rings;
    Step step(work);
    Block block = kDqInTurn ? loaded_block(a, shared, work, ring) : Block(a, work, step);
    await_turn(part);
    for (int i = 0; i < work.steps; ++i) {
      const int stage = ring.stage, buffer = results.stage;
      const auto add_block = [&]<bool kMasked>() {
        wait(shared.q_full[stage], ring.parity);
        Products::issue_transposed(s, operands.k_rows, operands.q.advance(stage * kQBytes));
        ptx::wgmma_commit_group();
        wait(shared.d_o_full[stage], ring.parity);
        Products::issue_transposed(dp, operands.v_rows, operands.d_o.advance(stage * kQBytes));
        ptx::wgmma_commit_group();

        ptx::wgmma_wait_group<1>();  // S
        pass_turn(part);
        ptx::keep_here(s);
        const bool finite = !(kMasked && kFlags) || all_finite(s);
        Scores::exponentiate(s, Statistic{shared.logsumexp[stage], part.first_query}, a.scale_log2);
        if constexpr (kMasked && kByRequest) ptx::keep_here(s);  // before the mask is read
        if constexpr (kMasked) Visible(a, work, part, block).select(s);
        ptx::wgmma_wait_group<0>();  // dP
        ptx::keep_here(dp);
        Scores::multiply_by(s, dp, Statistic{shared.d[d_stage(ring)], part.first_query});
        if constexpr (kMasked) Visible(a, work, part, block).select(dp);
        Products::round(dp, ds);
        wait(shared.ds_empty[buffer], results.parity ^ 1);
        Products::store_operand(ds, shared.ds[buffer], part);
        Products::round(s, p);
        ptx::fence_proxy_async();
        if constexpr (kMasked && kFlags) tell_finite(shared, part, buffer, finite);
        __syncwarp();
        release(part.lane, shared.ds_full[buffer]);

        await_turn(part);
        Products::issue_sum(dv, p, operands.d_o.advance(stage * kQBytes));
        ptx::wgmma_commit_group();
        Products::issue_sum(dk, ds, operands.q.advance(stage * kQBytes));
        ptx::wgmma_commit_group();
        // Meanwhile, since S of the next block is issued right after these products.
        ring.advance();
        results.advance();
        if constexpr (kDqInTurn) {
          if (i + 1 < work.steps) block = loaded_block(a, shared, work, ring);
        } else {
          step.advance(work);
          block = Block(a, work, step);
        }
        ring.keep_here();
        results.keep_here();
        ptx::wgmma_wait_group<0>();
      };
      if (block.masked) {
        add_block.template operator()<true>();
      } else {
        add_block.template operator()<false>();
      }
    }
    pass_turn(part);
  }

  // Stores this warp's rows of dK or dV, times `scale`. They go through the shared memory of the
  // same rows of K or V (`keys`), from where TMA copies them.
  template <typename Rows>
  static __device__ __forceinline__ void store(const CUtensorMap& tensor, const Rows& rows,
                                               char* keys, const Work& work, const Part& part,
                                               const float (&sum)[kKeyFloats], float scale) {
    const uint32_t staged = ptx::shared_address(keys) + part.warp_key * kRowBytes;
    send_rows<T>(sum, {scale, scale}, staged, kKvPanelBytes, tensor, rows,
                 work.first_key + part.warp_key);
  }

  // Puts this warp's rows of dK or dV into the accumulators of a shared block of keys: stores them
  // in this part's slice if deterministic, else adds them.
  static __device__ __forceinline__ void add_to_others(float* sums, const BackwardArguments& a,
                                                       const Work& work, const Part& part,
                                                       const float (&sum)[kKeyFloats]) {
    const int64_t row = backward::row_of_sums(a, work, kConfig.deterministic) + part.warp_key;
    float* tiles = sums + row * kSumsColumns;
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) {
      const float v[4] = {sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]};
      if constexpr (kConfig.deterministic) {
        backward::store_accumulator(tiles + j * kTileFloats, part.lane, v);
      } else {
        backward::add_to_key_sums(tiles + j * kTileFloats, part.lane, v);
      }
    }
  }

  // Adds up this warp's dK and dV of all pieces, and tells the warp that stores them from `buffer`
  // whether they are those of the whole.
  static __device__ __forceinline__ void add_up_pieces(const BackwardArguments& a, Shared& shared,
                                                       const Work& work, const Part& part,
                                                       int buffer, float (&dk)[kKeyFloats],
                                                       float (&dv)[kKeyFloats]) {
    const int warp = 4 * part.consumer + part.warp;
    const bool whole = adds_up<kWarps>(a, work, warp, PieceWarp<kDqWarpgroup>{}, dk, dv);
    if constexpr (Work::kMaySplit) {
      if (part.lane == 0) shared.stores[buffer][warp] = whole;
    }
  }

  // Computes one work item after the other. A copying warp stores dK and dV (see
  // backward_copies.cuh).
  template <int kOwnDqColumns>
  static __device__ void consume_all(const BackwardArguments& a, Shared& shared, int consumer) {
    Work work;
    RingPosition<kStages> ring;
    for (unsigned n = 0; Queue::next(*shared.queue, n, work); ++n) {
      const RingPlace<2> keys(n);
      const RingPlace<kVBuffers> values(n);
      float dk[kKeyFloats], dv[kKeyFloats];
#pragma unroll
      for (int i = 0; i < kKeyFloats; ++i) dk[i] = dv[i] = 0;
      wait(shared.k_full[keys.stage], keys.parity);
      wait(shared.v_full[values.stage], values.parity);
      // Each part derives its positions from tid again: registers have no room to keep them.
      if (work.steps > 0) {
        const Part part(consumer, ptx::tid_x());
        if constexpr (kDqTransposed) {
          sum_half_of_keys_staging_dq(a, shared, work, part, n, ring, dk, dv);
        } else {
          sum_half_of_keys_adding_in_halves<kOwnDqColumns>(a, shared, work, part, n, ring, dk, dv);
        }
      }
      ptx::keep_here(dk);
      ptx::keep_here(dv);
      const int thread = ptx::tid_x();
      const Part part(consumer, thread);
      if constexpr (kDqTransposed) {
        if (work.steps == 0) release(part.lane, shared.v_empty[0]);
      }
      Delay::before_barrier();
      ptx::barrier_sync(kBarrier, kConsumerThreads);  // the other may still read K and dS
      if (a.adds_keys) {
        add_to_others(a.dv_sums, a, work, part, dv);
        add_to_others(a.dk_sums, a, work, part, dk);
      } else {
        add_up_pieces(a, shared, work, part, keys.stage, dk, dv);
        const uint32_t rows = keys.stage * kKvBytes + part.warp_key * kRowBytes;
        if constexpr (kDqTransposed) {
          DqStaging::await_room(consumer);
          stage_rows<T>(
              dv, {1, 1},
              ptx::shared_address(shared.dq[consumer]) + part.warp * kWarpRows * kRowBytes,
              DqStaging::kDvPanelBytes, thread);
          DqStaging::hand_over(consumer);
        } else {
          stage_rows<T>(dv, {1, 1}, ptx::shared_address(shared.v) + rows, kKvPanelBytes, thread);
        }
        stage_rows<T>(dk, {a.scale, a.scale}, ptx::shared_address(shared.k) + rows, kKvPanelBytes,
                      thread);
        ptx::fence_proxy_async();
      }
      __syncwarp();
      release(part.lane, shared.kv_staged[keys.stage]);
    }
    // Leaves no thread behind at the barrier of a buffer.
    if constexpr (kDqTransposed) DqStaging::await_room(consumer);
  }

  // The same in turns. The consumers hand dK and dV to the warpgroup that computes dQ, in the place
  // of a dS: of each consumer's half of a buffer, the first 64 rows are dV, the others dK.
  static __device__ void consume_all_in_turns(const BackwardArguments& a, Shared& shared,
                                              int consumer) {
    Work work;
    Rings rings;
    begin_turns(Part(consumer));
    for (unsigned n = 0; Queue::next(*shared.queue, n, work); ++n) {
      const RingPlace<2> keys(n);
      float dk[kKeyFloats], dv[kKeyFloats];
#pragma unroll
      for (int i = 0; i < kKeyFloats; ++i) dk[i] = dv[i] = 0;
      wait(shared.k_full[keys.stage], keys.parity);
      wait(shared.v_full[0], n & 1);
      if (work.steps > 0) {
        sum_half_of_keys_in_turns(a, shared, work, Part(consumer, ptx::tid_x()), n, rings, dk, dv);
      }
      ptx::keep_here(dk);
      ptx::keep_here(dv);
      if constexpr (Work::kMaySplit) work = Queue::item(*shared.queue, n);  // not kept in registers
      const int thread = ptx::tid_x();
      const Part part(consumer, thread);
      const auto [buffer, parity] = rings.results;
      wait(shared.ds_empty[buffer], parity ^ 1);
      if (a.adds_keys) {
        add_to_others(a.dv_sums, a, work, part, dv);
        add_to_others(a.dk_sums, a, work, part, dk);
      } else {
        add_up_pieces(a, shared, work, part, buffer, dk, dv);
        const uint32_t staged = ptx::shared_address(shared.ds[buffer]) + consumer * kQPanelBytes +
                                part.warp * kWarpRows * kRowBytes;
        stage_rows<T>(dv, {1, 1}, staged, 0, thread);
        stage_rows<T>(dk, {a.scale, a.scale}, staged + kConsumerRows * kRowBytes, 0, thread);
        ptx::fence_proxy_async();
      }
      __syncwarp();
      release(part.lane, shared.ds_full[buffer]);
      rings.results.advance();
    }
    end_turns(Part(consumer));
  }

  static __device__ void consume(const BackwardArguments& a, Shared& shared, const Work& work,
                                 int consumer) {
    const Part part(consumer);
    float dk[kKeyFloats], dv[kKeyFloats];
#pragma unroll
    for (int i = 0; i < kKeyFloats; ++i) dk[i] = dv[i] = 0;
    if (work.steps > 0) {
      if constexpr (kDqWarpgroup) {
        Rings rings;
        wait(shared.k_full[0], 0);
        wait(shared.v_full[0], 0);
        begin_turns(part);
        sum_half_of_keys_in_turns(a, shared, work, part, 0, rings, dk, dv);
        end_turns(part);
      } else {
        sum_half_of_keys(a, shared, work, part, dk, dv);
      }
    }
    ptx::keep_here(dk);
    ptx::keep_here(dv);
    if (a.adds_keys) {
      add_to_others(a.dv_sums, a, work, part, dv);
      add_to_others(a.dk_sums, a, work, part, dk);
      return;
    }
    ptx::barrier_sync(kBarrier, kConsumerThreads);  // the other may still read K and V
    if (!adds_up<kWarps>(a, work, 4 * part.consumer + part.warp, PieceWarp<>{}, dk, dv)) return;
    store(a.dv[0], Rows{a}.key_gradients(work, a.dv_steps), shared.v, work, part, dv, 1);
    if constexpr (kDqWarpgroup) {
      const int last = work.steps - 1;  // its dQ reads K, too
      if (last >= 0) wait(shared.ds_empty[last % 2], last / 2 & 1);
    }
    store(a.dk[0], Rows{a}.key_gradients(work, a.dk_steps), shared.k, work, part, dk, a.scale);
    if (part.lane == 0) ptx::cp_async_bulk_wait_group_read();
  }
};

}  // namespace flashbench::kernels::sm90
