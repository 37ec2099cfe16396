// The main kernel of the backward pass for Hopper in which each warpgroup sums one gradient; see
// backward.cuh for the products. It serves head dimensions whose dK and dV of 64 keys and more do
// not fit the registers of one consumer.
//
// Consumer 0 sums dV, consumer 1 sums dK, each for all keys of the block and all columns. They are
// computed transposed, [columns, keys], since the number of keys need not be a multiple of 64.
// Each consumer computes S and dP of half of the keys. P and dS go through shared memory, where
// both consumers and a third warpgroup read them. This warpgroup computes dQ and adds it to memory,
// which takes about as long as all products of a block: no consumer waits for it. In the
// deterministic kernel it adds in the order of the thread blocks' keys, and a thread of the
// producer's warpgroup passes the turn (see backward_dq_turns.cuh).
//
// A consumer issues the sum of one block of queries right before S and dP of the next block. The
// tensor cores therefore work while it computes exponentials, and only stand still between the end
// of dP and the exchange of dS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/backward/accumulator.cuh"
#include "kernels/backward/work.cuh"
#include "kernels/ptx/barrier.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/ldmatrix.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/setmaxnreg.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/stmatrix.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_dq_turns.cuh"
#include "kernels/sm90/backward_finite.cuh"
#include "kernels/sm90/backward_keys_of_queries.cuh"
#include "kernels/sm90/backward_loads.cuh"
#include "kernels/sm90/backward_pieces.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, int kColumns, int kKeys, bool kInOrder = false, bool kForRequests = false,
          bool kInPieces = false, typename Delay = NoDelay>
struct BackwardByGradient : Barriers<Delay> {
  using Barriers<Delay>::wait;

  static constexpr bool kByRequest = kForRequests;
  static constexpr bool kDeterministic = kInOrder, kPairs = false, kSharesWork = kByRequest;
  static constexpr bool kPersistent = false;
  static constexpr int kHeadDim = kColumns;
  static constexpr int kBlockQ = 64;
  static constexpr int kBlockKv = kKeys;
  static constexpr int kStages = 2;
  static constexpr int kConsumers = 2;
  static constexpr int kThreads = 128 * (2 + kConsumers);
  static constexpr int kProducerRegisters = 24, kDqRegisters = 88, kConsumerRegisters = 200;
  static_assert(kProducerRegisters + kDqRegisters + kConsumers * kConsumerRegisters <= 4 * 128);

  // Shapes per consumer: S and dP [kBlockQ, kSKeys]; dV^T or dK^T in panels [64, kBlockKv].
  static constexpr int kSKeys = kBlockKv / kConsumers;
  static constexpr int kPanels = kHeadDim / 64;
  static_assert(kHeadDim % 64 == 0 && kBlockKv % 16 == 0);

  static constexpr int kQPanelBytes = kBlockQ * kRowBytes;
  static constexpr int kKvPanelBytes = kBlockKv * kRowBytes;
  static constexpr int kQBytes = kPanels * kQPanelBytes;
  static constexpr int kKvBytes = kPanels * kKvPanelBytes;

  // Registers per thread.
  static constexpr int kSFloats = kSKeys / 2;
  static constexpr int kSumFloats = kBlockKv / 2;  // of a panel

  // dQ's warpgroup computes so many columns at a time.
  static constexpr int kDqColumns = 32;
  static constexpr int kDqFloats = kDqColumns / 2;
  static constexpr int kDqParts = kHeadDim / kDqColumns;
  static constexpr int kTileFloats = 128;
  // A consumer sets its flags before it waits for ds_empty of the block kStages before.
  static constexpr int kFlags = 2 * kStages;

  using Work =
      std::conditional_t<kByRequest, backward::RequestWork<kBlockQ, kBlockKv, kDeterministic>,
                         backward::Work<kBlockQ, kBlockKv, kDeterministic, kInPieces>>;
  using Rows = BackwardRows<kByRequest>;
  using Step = backward::Step;
  using Turns = DqTurns<Delay>;
  using Block = BackwardBlock<kBlockQ, kBlockKv>;

  struct Shared {
    alignas(1024) char k[kKvBytes];
    alignas(1024) char v[kKvBytes];
    alignas(1024) char q[kStages][kQBytes];
    alignas(1024) char d_o[kStages][kQBytes];
    // P^T and dS^T [keys, queries].
    alignas(1024) char p[kStages][kKvPanelBytes];
    alignas(1024) char ds[kStages][kKvPanelBytes];
    alignas(128) float logsumexp[kStages][kBlockQ];
    alignas(128) float d[kStages][kBlockQ];
    uint64_t k_full[1], v_full[1], k_empty;
    uint64_t q_full[kStages], q_empty[kStages];      // Q and the logsumexp
    uint64_t d_o_full[kStages], d_o_empty[kStages];  // dO and D
    uint64_t p_ds_full[kStages], ds_empty[kStages];
    typename Turns::Shared dq_turns[kDeterministic ? 1 : 0];
    int ticket;
    bool finite[kFlags][4 * kConsumers];  // whether the scores of each warp are (see all_finite)
    alignas(16) char work[kByRequest ? sizeof(Work) : 0];
  };

  static __device__ void initialise_barriers(Shared& shared) {
    const auto init = [](uint64_t& barrier, int arrivals) {
      ptx::mbarrier_init(ptx::shared_address(&barrier), arrivals);
    };
    init(shared.k_full[0], 1);
    init(shared.v_full[0], 1);
    init(shared.k_empty, 4);
    for (int i = 0; i < kStages; ++i) {
      init(shared.q_full[i], 1);
      init(shared.q_empty[i], 4);
      init(shared.d_o_full[i], 1);
      init(shared.d_o_empty[i], 4);
      init(shared.p_ds_full[i], 4 * kConsumers);
      init(shared.ds_empty[i], 4);
    }
    if constexpr (kDeterministic) Turns::initialise_barriers(shared.dq_turns[0], 4);
    ptx::fence_mbarrier_init();
  }

  using Place = RingPlace<kStages>;  // every buffer has kStages stages

  static __device__ __forceinline__ void release(const uint64_t& empty) {
    Barriers<Delay>::release(static_cast<int>(threadIdx.x) % 32, empty);
  }

  // ---- A consumer

  // Starts product = A B^T for A [kBlockQ, kHeadDim] and B [kSKeys, kHeadDim].
  static __device__ __forceinline__ void issue_scores(float (&product)[kSFloats],
                                                      ptx::WgmmaMatrix a, ptx::WgmmaMatrix b) {
    sm90::issue_scores<T, kHeadDim, kSKeys>(product, a, kQPanelBytes, b, kKvPanelBytes);
  }

  // Starts sum += A^T B^T for A [kBlockQ, kHeadDim] and B [kBlockKv, kBlockQ].
  static __device__ __forceinline__ void issue_sum(float (&sum)[kPanels][kSumFloats],
                                                   ptx::WgmmaMatrix a, ptx::WgmmaMatrix b) {
    ptx::wgmma_fence();
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll
      for (int step = 0; step < kBlockQ / 16; ++step) {
        ptx::Wgmma<kBlockKv>::template multiply_shared<T, ptx::RowsAlong::mn, ptx::RowsAlong::k>(
            sum[panel], a.advance(panel * kQPanelBytes + step * 16 * kRowBytes),
            b.advance(step * 32), true);
      }
    }
  }

  // Loops over all blocks of queries: computes P and dS of this consumer's keys, and sums dV^T or
  // dK^T.
  static __device__ __forceinline__ void sum_gradient(const BackwardArguments& a, Shared& shared,
                                                      const Work& work, int consumer,
                                                      float (&sum)[kPanels][kSumFloats]) {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first_row = warp * kWarpRows + lane / 4;       // the thread's first query
    const int first_key = consumer * kSKeys + lane % 4 * 2;  // and key
    const int key_bytes = consumer * kSKeys * kRowBytes;
    const uint32_t stored = transposed_offset() + key_bytes;
    const auto k = matrix_at(shared, offsetof(Shared, k) + key_bytes, kKvPanelBytes);
    const auto v = matrix_at(shared, offsetof(Shared, v) + key_bytes, kKvPanelBytes);
    const auto q = matrix_at(shared, offsetof(Shared, q), kQPanelBytes);
    const auto d_o = matrix_at(shared, offsetof(Shared, d_o), kQPanelBytes);
    const auto weights = matrix_at(
        shared, consumer == 0 ? offsetof(Shared, p) : offsetof(Shared, ds), kKvPanelBytes);
    const auto rows = consumer == 0 ? d_o : q;
    const auto issue_sum_of = [&](const Place& at) {
      wait(shared.p_ds_full[at.stage], at.parity);
      issue_sum(sum, rows.advance(at.stage * kQBytes), weights.advance(at.stage * kKvPanelBytes));
    };

    Step step(work);
    wait(shared.k_full[0], 0);
    wait(shared.v_full[0], 0);
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      const Place at(i), before(i - 1);
      const Block block(a, work, step);
      const auto add_block = [&]<bool kMasked>() {
        float s[kSFloats], dp[kSFloats];
        if (i > 0) issue_sum_of(before);
        ptx::wgmma_fence();  // else ptxas adds one where the branches meet
        ptx::wgmma_commit_group();
        wait(shared.q_full[at.stage], at.parity);
        issue_scores(s, q.advance(at.stage * kQBytes), k);
        ptx::wgmma_commit_group();
        wait(shared.d_o_full[at.stage], at.parity);
        issue_scores(dp, d_o.advance(at.stage * kQBytes), v);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<2>();  // the sum
        // The other consumer was done with the block before p_ds_full.
        if (i > 0) release((consumer == 0 ? shared.d_o_empty : shared.q_empty)[before.stage]);

        ptx::wgmma_wait_group<1>();  // S
        ptx::keep_here(s);
        const VisibleKeys<Work, kSFloats> visible(a, work, block.first_query + first_row,
                                                  first_key);
        if constexpr (kMasked) {
          const bool finite = __all_sync(~0u, all_finite(s));
          if (lane == 0) shared.finite[i % kFlags][4 * consumer + warp] = finite;
        }
        const float l[2] = {shared.logsumexp[at.stage][first_row],
                            shared.logsumexp[at.stage][first_row + 8]};
#pragma unroll
        for (int x = 0; x < kSFloats; ++x) {
          s[x] = ptx::ex2_approx_ftz(__fmaf_rn(s[x], a.scale_log2, -l[x / 2 % 2]));
        }
        if constexpr (kMasked) visible.select(s);
        store_transposed<T>(s, ptx::shared_address(shared.p[at.stage]) + stored);

        ptx::wgmma_wait_group<0>();  // dP
        ptx::keep_here(dp);
        const float d[2] = {shared.d[at.stage][first_row], shared.d[at.stage][first_row + 8]};
#pragma unroll
        for (int x = 0; x < kSFloats; ++x) dp[x] = s[x] * (dp[x] - d[x / 2 % 2]);
        if constexpr (kMasked) visible.select(dp);
        wait(shared.ds_empty[at.stage], at.parity ^ 1);
        store_transposed<T>(dp, ptx::shared_address(shared.ds[at.stage]) + stored);
        ptx::fence_proxy_async();
        __syncwarp();
        release(shared.p_ds_full[at.stage]);
      };
      if (block.masked) {
        add_block.template operator()<true>();
      } else {
        add_block.template operator()<false>();
      }
    }
    issue_sum_of(Place(work.steps - 1));
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
  }

  static constexpr int kStoreBarrier = 1;  // named barriers, one for each consumer

  // Stores dV or dK, times `scale`. It goes through the shared memory of V or K (`keys`), from
  // where TMA copies it.
  template <typename Rows>
  static __device__ __forceinline__ void store(const CUtensorMap& tensor, const Rows& rows,
                                               char* keys, const Work& work, int consumer,
                                               const float (&sum)[kPanels][kSumFloats],
                                               float scale) {
    const uint32_t base = ptx::shared_address(keys);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll
      for (int i = 0; i < kSumFloats; i += 8) {
        const float* x = sum[panel] + i;
        const uint32_t words[4] = {ptx::cvt_rn_x2<T>(x[0] * scale, x[1] * scale),
                                   ptx::cvt_rn_x2<T>(x[2] * scale, x[3] * scale),
                                   ptx::cvt_rn_x2<T>(x[4] * scale, x[5] * scale),
                                   ptx::cvt_rn_x2<T>(x[6] * scale, x[7] * scale)};
        ptx::stmatrix_x4_trans(
            base + transposed_offset() + panel * kKvPanelBytes + i * 2 * kRowBytes, words);
      }
    }
    ptx::fence_proxy_async();
    Delay::before_barrier();
    ptx::barrier_sync(kStoreBarrier + consumer, 128);
    if (threadIdx.x % 32 != 0) return;
    for (int row = static_cast<int>(threadIdx.x) / 32 % 4 * kWarpRows; row < kBlockKv;
         row += 4 * kWarpRows) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        rows.store(tensor, panel * 64, work.first_key + row,
                   base + panel * kKvPanelBytes + row * kRowBytes);
      }
    }
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read();
  }

  // Puts dV or dK into the accumulators of a shared block of keys: stores it in this part's slice
  // if deterministic, else adds it.
  static __device__ __forceinline__ void add_to_others(float* sums, const BackwardArguments& a,
                                                       const Work& work,
                                                       const float (&sum)[kPanels][kSumFloats]) {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float* block = sums + backward::row_of_sums(a, work, kDeterministic) * kHeadDim;
#pragma unroll
    for (int row = 0; row < kBlockKv; row += kWarpRows) {
      if (work.first_key + row >= work.rows_of_sums(a)) break;
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float* x = sum[panel] + row / 2 + 2 * half;
          float v[4] = {x[0], x[1], x[4], x[5]};
          backward::transpose_accumulators(v[0], v[1]);
          backward::transpose_accumulators(v[2], v[3]);
          const int column = panel * 64 + warp * 16 + half * 8;
          float* tile = block + (row / 16 * kHeadDim + column) / 8 * kTileFloats;
          if constexpr (kDeterministic) {
            backward::store_accumulator(tile, lane, v);
          } else {
            backward::add_to_key_sums(tile, lane, v);
          }
        }
      }
    }
  }

  static __device__ void consume(const BackwardArguments& a, Shared& shared, const Work& work,
                                 int consumer) {
    const bool sums_dv = consumer == 0;
    float sum[kPanels][kSumFloats];
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll
      for (int i = 0; i < kSumFloats; ++i) sum[panel][i] = 0;
    }
    if (work.steps > 0) sum_gradient(a, shared, work, consumer, sum);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) ptx::keep_here(sum[panel]);
    if (a.adds_keys) {
      add_to_others(sums_dv ? a.dv_sums : a.dk_sums, a, work, sum);
      return;
    }
    const int warp = 4 * consumer + static_cast<int>(threadIdx.x) / 32 % 4;
    const PieceWarpgroup all_columns{kStoreBarrier + consumer};
    if (!adds_up<4 * kConsumers>(a, work, warp, all_columns, sum[0], sum[1], sum[2])) return;
    if (!sums_dv && work.steps > 0) wait(shared.k_empty, 0);
    store(sums_dv ? a.dv[0] : a.dk[0],
          Rows{a}.key_gradients(work, sums_dv ? a.dv_steps : a.dk_steps),
          sums_dv ? shared.v : shared.k, work, consumer, sum, sums_dv ? 1 : a.scale);
  }

  // ---- The warpgroup that computes dQ

  // Starts dQ = dS K for kDqColumns columns of K. A warp has its 16 rows of dS in registers.
  static __device__ __forceinline__ void issue_dq(float (&dq)[kDqFloats],
                                                  const uint32_t (&ds)[kBlockKv / 16][4],
                                                  ptx::WgmmaMatrix k) {
    ptx::keep_here(dq);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBlockKv / 16; ++step) {
      ptx::Wgmma<kDqColumns>::template multiply_registers<T>(
          dq, ds[step], k.advance(step * 16 * kRowBytes), step != 0);
    }
    ptx::wgmma_commit_group();
  }

  // The turn of the thread block at a block of dQ, where deterministic.
  struct Turn {
    const int* turn;
    int mine, seen;

    __device__ __forceinline__ Turn(const BackwardArguments& a, const Work& work, const Step& step,
                                    const Block& block) {
      if constexpr (kDeterministic) {
        turn = Turns::at(a, block.first_row, 0);
        mine = work.turn(step.block);
        seen = -1;
      }
    }
    __device__ __forceinline__ void look() {
      if constexpr (kDeterministic) seen = Turns::look(turn);
    }
    __device__ __forceinline__ void await() {
      if constexpr (kDeterministic) {
        Delay::before_barrier();
        while (!__all_sync(~0u, seen == mine)) look();
      }
    }
  };

  static __device__ void sum_dq(const BackwardArguments& a, Shared& shared, const Work& work) {
    if (work.steps == 0) return;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto k = matrix_at(shared, offsetof(Shared, k), kKvPanelBytes);
    Step step(work);
    wait(shared.k_full[0], 0);
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      const Place at(i);
      const Block block(a, work, step);
      wait(shared.p_ds_full[at.stage], at.parity);
      bool finite = true;
      if (block.masked) {
#pragma unroll
        for (int x = 0; x < 4 * kConsumers; ++x) finite &= shared.finite[i % kFlags][x];
      }
      Turn turn(a, work, step, block);
      if (!finite) {
        turn.await();
        add_seen_keys(a, shared, work, block, shared.ds[at.stage]);
        if constexpr (kDeterministic) Turns::hand_on(shared.dq_turns[0], i);
        __syncwarp();
        release(shared.ds_empty[at.stage]);
        continue;
      }
      uint32_t ds[kBlockKv / 16][4];
#pragma unroll
      for (int x = 0; x < kBlockKv / 16; ++x) {
        ptx::ldmatrix_x4_trans(ds[x], ptx::shared_address(shared.ds[at.stage]) +
                                          transposed_offset() + x * 16 * kRowBytes);
      }
      __syncwarp();
      release(shared.ds_empty[at.stage]);

      // One part is computed while the one before is added to memory.
      float* tiles = a.dq_sums + (block.first_row + warp * kWarpRows) * kHeadDim;
      float dq[2][kDqFloats];
      issue_dq(dq[0], ds, k);
      turn.look();
#pragma unroll
      for (int part = 0; part < kDqParts; ++part) {
        if (part + 1 < kDqParts) {
          const int column = (part + 1) * kDqColumns;
          issue_dq(dq[(part + 1) % 2], ds,
                   k.advance(column / 64 * kKvPanelBytes + column % 64 * 2));
          ptx::wgmma_wait_group<1>();
        } else {
          ptx::wgmma_wait_group<0>();
        }
        ptx::keep_here(dq[part % 2]);
        if (part == 0) turn.await();
#pragma unroll
        for (int j = 0; j < kDqColumns / 8; ++j) {
          const float* x = dq[part % 2] + 4 * j;
          const float values[4] = {x[0], x[1], x[2], x[3]};
          backward::add_to_accumulator(tiles + (part * kDqColumns / 8 + j) * kTileFloats, lane,
                                       values);
        }
      }
      if constexpr (kDeterministic) Turns::hand_on(shared.dq_turns[0], i);
    }
    release(shared.k_empty);
  }

  // Adds a block of dQ, computed key by key from dS and K in shared memory.
  static __device__ __forceinline__ void add_seen_keys(const BackwardArguments& a,
                                                       const Shared& shared, const Work& work,
                                                       const Block& block, const char* ds) {
    const SeenKeys<Work, kBlockKv> seen(a, work, block.first_query);
    float* tiles = a.dq_sums + block.first_row * kHeadDim;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % 128; i < kBlockQ * kHeadDim; i += 128) {
      const int row = i / kHeadDim, column = i % kHeadDim;
      float sum = 0;
#pragma unroll 1
      for (int key = seen.first_of(row); key < seen.end_of(row); ++key) {
        sum += element<T>(ds, kKvPanelBytes, key, row) *
               element<T>(shared.k, kKvPanelBytes, key, column);
      }
      atomicAdd(backward::accumulator_of<kHeadDim>(tiles, row, column), sum);
    }
  }

  // ---- The producer

  static __device__ void load(const BackwardArguments& a, Shared& shared, const Work& work) {
    if (work.steps == 0) return;
    BackwardBlockLoads<BackwardByGradient> loads(a, shared, work);
    loads.k();
    loads.v();
    ptx::griddepcontrol_wait();
    for (int i = 0; i < work.steps; ++i, loads.step.advance(work)) {
      const Place at(i);
      wait(shared.q_empty[at.stage], at.parity ^ 1);
      loads.q(at.stage);
      wait(shared.d_o_empty[at.stage], at.parity ^ 1);
      loads.d_o(at.stage);
    }
  }

  static __device__ __forceinline__ void run_roles(const BackwardArguments& a, Shared& shared,
                                                   const Work& work) {
    // The shuffle tells the compiler that the warpgroup index is the same in all lanes.
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
      ptx::setmaxnreg_dec<kProducerRegisters>();
      if (threadIdx.x == 0) load(a, shared, work);
      if constexpr (kDeterministic) {
        if (threadIdx.x == 32) Turns::template pass_all<kBlockQ>(a, shared.dq_turns[0], work, 0);
      }
    } else if (warpgroup == 1) {
      ptx::setmaxnreg_dec<kDqRegisters>();
      sum_dq(a, shared, work);
    } else {
      ptx::setmaxnreg_inc<kConsumerRegisters>();
      consume(a, shared, work, warpgroup - 2);
    }
  }
};

}  // namespace flashbench::kernels::sm90
