// The main kernel of the backward pass for Hopper in which two thread blocks share dQ; see
// backward.cuh for the products. It serves head_dim 256.
//
// dK and dV of more than 64 keys do not fit the registers of a multiprocessor there. But a block of
// dQ is as large for 64 keys as for 128, and adding it to memory would take longer than all
// products. So two thread blocks with neighbouring blocks of 64 keys form a cluster, a pair. They
// go through the blocks of queries in step. Each sends its dS to the other, computes half of the
// columns of dQ for the keys of both, and adds these to memory.
//
// The warpgroups of a thread block have different roles, and hand P and dS over in shared memory:
//   0  one thread loads Q and dO, another sends dS to the pair's other thread block; in the
//      deterministic kernel, a third one passes turns at dQ (see backward_dq_turns.cuh);
//   1  computes S and dP, and from them P and dS;
//   2 and 3  each sum half of the columns of dK and dV, and a quarter of the columns of dQ.
// The tensor cores therefore work for 2 and 3 while 1 computes exponentials. Its own chain is the
// longest. The fence before it hands over takes several hundred clocks, so that a product of its
// own runs meanwhile: dP when it hands P over, S of the next block when it hands dS over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/backward/accumulator.cuh"
#include "kernels/backward/work.cuh"
#include "kernels/ptx/barrier.h"
#include "kernels/ptx/cluster.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/setmaxnreg.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_dq_turns.cuh"
#include "kernels/sm90/backward_finite.cuh"
#include "kernels/sm90/backward_keys_of_queries.cuh"
#include "kernels/sm90/backward_loads.cuh"
#include "kernels/sm90/backward_pieces.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, bool kInOrder = false, bool kForRequests = false, bool kInPieces = false,
          typename Delay = NoDelay>
struct BackwardPairs : Barriers<Delay> {
  using Barriers<Delay>::wait;

  static constexpr bool kByRequest = kForRequests;
  static constexpr bool kDeterministic = kInOrder, kPairs = true, kSharesWork = true,
                        kPersistent = false;
  static constexpr int kHeadDim = 256;
  static constexpr int kBlockQ = 64;
  static constexpr int kBlockKv = 64;  // of a thread block
  static constexpr int kPairKv = 2 * kBlockKv;
  static constexpr int kStages = 2;   // buffers for blocks of Q
  static constexpr int kSummers = 2;  // warpgroups that sum gradients
  static constexpr int kThreads = 128 * (2 + kSummers);
  static constexpr int kProducerRegisters = 24, kScorerRegisters = 104, kSummerRegisters = 192;
  static_assert(kProducerRegisters + kScorerRegisters + kSummers * kSummerRegisters <= 4 * 128);

  // Columns per summer: of dK and dV, and of dQ (a panel).
  static constexpr int kKeyColumns = kHeadDim / kSummers;
  static constexpr int kDqColumns = kKeyColumns / 2;
  static constexpr int kPanels = kHeadDim / 64;
  static constexpr int kHalfPanels = kPanels / 2;

  static constexpr int kQPanelBytes = kBlockQ * kRowBytes;
  static constexpr int kKvPanelBytes = kBlockKv * kRowBytes;
  static constexpr int kQBytes = kPanels * kQPanelBytes;
  static constexpr int kKvBytes = kPanels * kKvPanelBytes;
  static constexpr int kDsBytes = kBlockKv * kRowBytes;

  // Registers per thread.
  static constexpr int kSFloats = kBlockKv / 2;
  static constexpr int kKeyFloats = kKeyColumns / 2;
  static constexpr int kDqFloats = kDqColumns / 2;
  static constexpr int kTileFloats = 128;

  // The work of a pair.
  using Work =
      std::conditional_t<kByRequest, backward::RequestWork<kBlockQ, kPairKv, kDeterministic>,
                         backward::Work<kBlockQ, kPairKv, kDeterministic, kInPieces>>;
  using Rows = BackwardRows<kByRequest>;
  using Step = backward::Step;
  using Turns = DqTurns<Delay>;  // a thread block has half of the columns of dQ
  using Block = BackwardBlock<kBlockQ, kPairKv>;

  struct Shared {
    alignas(1024) char k[kKvBytes];
    alignas(1024) char v[kKvBytes];
    alignas(1024) char k_peer[kKvBytes / 2];  // the other's keys, this one's columns of dQ
    alignas(1024) char q[kStages][kQBytes];
    alignas(1024) char d_o[1][kQBytes];
    // P^T and dS^T [keys, queries]; what the other has sent of its own.
    alignas(1024) char p[2][kDsBytes];
    alignas(1024) char ds[2][kDsBytes];
    alignas(1024) char ds_peer[2][kDsBytes];
    alignas(128) float logsumexp[kStages][kBlockQ];
    alignas(128) float d[1][kBlockQ];
    uint64_t k_full[1], v_full[1], k_peer_full;
    uint64_t q_full[kStages], q_empty[kStages];  // Q and the logsumexp
    uint64_t d_o_full[1], d_o_empty[1];          // dO and D
    uint64_t p_full[2], p_empty[2];
    // A buffer of dS is empty when both thread blocks have used it.
    uint64_t ds_full[2], ds_peer_full[2], ds_empty[2];
    Block blocks[2];  // that P and dS belong to, for the summers
    // Where deterministic: the pair's turns at these blocks.
    int turns[kDeterministic ? 2 : 0];
    typename Turns::Shared dq_turns[kDeterministic ? 1 : 0];
    int ticket;
    alignas(16) char work[sizeof(Work)];
  };

  static __device__ void initialise_barriers(Shared& shared) {
    const auto init = [](uint64_t& barrier, int arrivals) {
      ptx::mbarrier_init(ptx::shared_address(&barrier), arrivals);
    };
    constexpr int kSummerWarps = 4 * kSummers, kReaders = 4 + kSummerWarps;
    init(shared.k_full[0], 1);
    init(shared.v_full[0], 1);
    init(shared.k_peer_full, 1);
    init(shared.d_o_full[0], 1);
    init(shared.d_o_empty[0], kReaders);
    for (int i = 0; i < 2; ++i) {
      init(shared.q_full[i], 1);
      init(shared.q_empty[i], kReaders);
      init(shared.p_full[i], 4);
      init(shared.p_empty[i], kSummerWarps);
      init(shared.ds_full[i], 4);
      init(shared.ds_peer_full[i], 1);
      init(shared.ds_empty[i], 2 * kSummerWarps);
    }
    if constexpr (kDeterministic) Turns::initialise_barriers(shared.dq_turns[0], kSummerWarps);
    ptx::fence_mbarrier_init();
  }

  using Place = RingPlace<2>;  // every buffer but that of dO has two stages

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }
  static __device__ __forceinline__ int first_own_key() {  // among those of the pair
    return kBlockKv * ptx::cluster_ctarank();
  }

  static __device__ __forceinline__ void release(const uint64_t& empty) {
    Barriers<Delay>::release(lane(), empty);
  }
  // The same barrier in the other thread block. What it guards has been read, and nothing was
  // written: no order is needed.
  static __device__ __forceinline__ void release_to_peer(const uint64_t& empty) {
    Delay::before_barrier();
    if (lane() == 0) {
      ptx::mbarrier_arrive_cluster_relaxed(
          ptx::mapa(ptx::shared_address(&empty), 1 - ptx::cluster_ctarank()));
    }
  }

  // ---- The scorer

  // Starts product = A B^T for A [kBlockQ, kHeadDim] and B [kBlockKv, kHeadDim].
  static __device__ __forceinline__ void issue_scores(float (&product)[kSFloats],
                                                      ptx::WgmmaMatrix a, ptx::WgmmaMatrix b) {
    sm90::issue_scores<T, kHeadDim, kBlockKv>(product, a, kQPanelBytes, b, kKvPanelBytes);
    ptx::wgmma_commit_group();
  }

  static __device__ __forceinline__ void hand_over(const uint64_t& full) {
    ptx::fence_proxy_async();
    __syncwarp();
    release(full);
  }

  static __device__ __forceinline__ void compute_scores(const BackwardArguments& a, Shared& shared,
                                                        const Work& work) {
    const int first_row = warp() * kWarpRows + lane() / 4;  // the thread's first query
    const int first_key = first_own_key() + lane() % 4 * 2;
    const auto k = matrix_at(shared, offsetof(Shared, k), kKvPanelBytes);
    const auto v = matrix_at(shared, offsetof(Shared, v), kKvPanelBytes);
    const auto q = matrix_at(shared, offsetof(Shared, q), kQPanelBytes);
    const auto d_o = matrix_at(shared, offsetof(Shared, d_o), kQPanelBytes);
    float s[kSFloats], dp[kSFloats];
    Step step(work);
    wait(shared.k_full[0], 0);
    wait(shared.q_full[0], 0);
    issue_scores(s, q, k);
    wait(shared.v_full[0], 0);
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      const Place at(i), next(i + 1);
      const Block block(a, work, step);
      const VisibleKeys<Work, kSFloats> visible(a, work, block.first_query + first_row, first_key);

      const float l[2] = {shared.logsumexp[at.stage][first_row],
                          shared.logsumexp[at.stage][first_row + 8]};
      ptx::wgmma_wait_group<0>();  // S
      ptx::keep_here(s);
      release(shared.q_empty[at.stage]);
#pragma unroll
      for (int x = 0; x < kSFloats; ++x) {
        s[x] = ptx::ex2_approx_ftz(__fmaf_rn(s[x], a.scale_log2, -l[x / 2 % 2]));
      }
      if (block.masked) visible.select(s);
      wait(shared.ds_empty[at.stage], at.parity ^ 1);
      wait(shared.p_empty[at.stage], at.parity ^ 1);
      if (warp() == 0 && lane() == 0) {
        shared.blocks[at.stage] = block;
        if constexpr (kDeterministic) shared.turns[at.stage] = work.turn(step.block);
      }
      store_transposed<T>(s, ptx::shared_address(shared.p[at.stage]) + transposed_offset());
      wait(shared.d_o_full[0], i % 2);
      issue_scores(dp, d_o, v);
      hand_over(shared.p_full[at.stage]);

      const float d[2] = {shared.d[0][first_row], shared.d[0][first_row + 8]};
      ptx::wgmma_wait_group<0>();  // dP
      ptx::keep_here(dp);
      release(shared.d_o_empty[0]);
#pragma unroll
      for (int x = 0; x < kSFloats; ++x) dp[x] = s[x] * (dp[x] - d[x / 2 % 2]);
      if (block.masked) visible.select(dp);
      store_transposed<T>(dp, ptx::shared_address(shared.ds[at.stage]) + transposed_offset());
      if (i + 1 < work.steps) wait(shared.q_full[next.stage], next.parity);
      // After the last block, a product that nobody reads: ptxas serialises one in a branch.
      issue_scores(s, q.advance(next.stage * kQBytes), k);
      hand_over(shared.ds_full[at.stage]);
    }
    ptx::wgmma_wait_group<0>();
  }

  // ---- A summer

  // Starts sum += A B for A [kBlockKv, kBlockQ] and B [kBlockQ, kKeyColumns].
  static __device__ __forceinline__ void issue_sum(float (&sum)[kKeyFloats], ptx::WgmmaMatrix a,
                                                   ptx::WgmmaMatrix b) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBlockQ / 16; ++step) {
      ptx::Wgmma<kKeyColumns>::template multiply_shared<T, ptx::RowsAlong::k, ptx::RowsAlong::mn>(
          sum, a.advance(step * 32), b.advance(step * 16 * kRowBytes), true);
    }
    ptx::wgmma_commit_group();
  }

  // Starts dQ = dS K, or dQ += dS K, for the keys of one thread block.
  static __device__ __forceinline__ void multiply_dq(float (&dq)[kDqFloats], ptx::WgmmaMatrix ds,
                                                     ptx::WgmmaMatrix k, bool accumulate) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBlockKv / 16; ++step) {
      ptx::Wgmma<kDqColumns>::template multiply_shared<T, ptx::RowsAlong::mn, ptx::RowsAlong::mn>(
          dq, ds.advance(step * 16 * kRowBytes), k.advance(step * 16 * kRowBytes),
          accumulate || step != 0);
    }
  }

  static __device__ __forceinline__ int first_dq_column(int summer) {
    return kKeyColumns * ptx::cluster_ctarank() + kDqColumns * summer;
  }

  // The number of the tile of dQ's accumulators with which a warp's part of a block begins.
  static __device__ __forceinline__ unsigned first_tile(const Block& block, int summer) {
    return static_cast<unsigned>(block.first_row / kWarpRows + warp()) * (kHeadDim / 8) +
           first_dq_column(summer) / 8;
  }

  static __device__ __forceinline__ void add(const BackwardArguments& a, unsigned tile,
                                             const float (&dq)[kDqFloats]) {
    float* tiles = a.dq_sums + int64_t{tile} * kTileFloats;
#pragma unroll
    for (int j = 0; j < kDqColumns / 8; ++j) {
      const float v[4] = {dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]};
      backward::add_to_accumulator(tiles + j * kTileFloats, lane(), v);
    }
  }

  // Adds a warp's part of a block of dQ, computed key by key from dS and K in shared memory.
  static __device__ __forceinline__ void add_seen_keys(const BackwardArguments& a,
                                                       const Shared& shared, const Work& work,
                                                       int summer, unsigned stage) {
    const Block& block = shared.blocks[stage];
    const SeenKeys<Work, kPairKv> seen(a, work, block.first_query);
    float* tiles = a.dq_sums + block.first_row * kHeadDim;
#pragma unroll 1
    for (int i = lane(); i < kWarpRows * kDqColumns; i += 32) {
      const int row = warp() * kWarpRows + i / kDqColumns;
      const int column = first_dq_column(summer) + i % kDqColumns;
      float sum = 0;
#pragma unroll 1
      for (int key = seen.first_of(row); key < seen.end_of(row); ++key) {
        const int its = key % kBlockKv, rank = ptx::cluster_ctarank();
        const bool own = key / kBlockKv == rank;
        const char* own_columns = shared.k + rank * kHalfPanels * kKvPanelBytes;
        sum +=
            element<T>(own ? shared.ds[stage] : shared.ds_peer[stage], kQPanelBytes, its, row) *
            element<T>(own ? own_columns : shared.k_peer, kKvPanelBytes, its, column % kKeyColumns);
      }
      atomicAdd(backward::accumulator_of<kHeadDim>(tiles, row, column), sum);
    }
  }

  static __device__ __forceinline__ void sum_gradients(const BackwardArguments& a, Shared& shared,
                                                       const Work& work, int summer,
                                                       float (&dk)[kKeyFloats],
                                                       float (&dv)[kKeyFloats]) {
    const int own_panel = ptx::cluster_ctarank() * kHalfPanels + summer;  // of dQ's columns
    const auto columns = [&](int offset) {
      return matrix_at(shared, offset + summer * kHalfPanels * kQPanelBytes, kQPanelBytes);
    };
    const auto q = columns(offsetof(Shared, q)), d_o = columns(offsetof(Shared, d_o));
    const auto k =
        matrix_at(shared, offsetof(Shared, k) + own_panel * kKvPanelBytes, kKvPanelBytes);
    const auto k_peer =
        matrix_at(shared, offsetof(Shared, k_peer) + summer * kKvPanelBytes, kKvPanelBytes);
    const auto p = matrix_at(shared, offsetof(Shared, p), kQPanelBytes);
    const auto ds = matrix_at(shared, offsetof(Shared, ds), kQPanelBytes);
    const auto ds_peer = matrix_at(shared, offsetof(Shared, ds_peer), kQPanelBytes);
    float dq[kDqFloats];
    constexpr unsigned kNone = ~0u;
    unsigned unsent = kNone;  // first tile of the dQ that has yet to be added
    int mine = 0, seen = 0;   // turns at that block: the pair's, and the one last seen
    const auto look_whose_turn = [&] {
      const int64_t row = int64_t{unsent / (kHeadDim / 8) - warp()} * kWarpRows;
      seen = Turns::look(Turns::at(a, row, ptx::cluster_ctarank()));
    };
    const auto await_turn = [&] {
      Delay::before_barrier();
      while (!__all_sync(~0u, seen == mine)) look_whose_turn();
      mine = seen = 0;  // frees their registers
    };
    const auto add_unsent = [&](int i) {
      if (unsent == kNone) return;
      if constexpr (kDeterministic) await_turn();
      add(a, unsent, dq);
      if constexpr (kDeterministic) Turns::hand_on(shared.dq_turns[0], i);
    };
    const int steps = work.steps;
    wait(shared.k_full[0], 0);
    wait(shared.k_peer_full, 0);
    for (int i = 0; i < steps; ++i) {
      const Place at(i);
      wait(shared.d_o_full[0], i % 2);
      wait(shared.p_full[at.stage], at.parity);
      issue_sum(dv, p.advance(at.stage * kDsBytes), d_o);
      add_unsent(i - 1);
      ptx::wgmma_wait_group<0>();
      release(shared.p_empty[at.stage]);
      release(shared.d_o_empty[0]);

      wait(shared.q_full[at.stage], at.parity);
      wait(shared.ds_full[at.stage], at.parity);
      issue_sum(dk, ds.advance(at.stage * kDsBytes), q.advance(at.stage * kQBytes));
      ptx::keep_here(dq);
      multiply_dq(dq, ds.advance(at.stage * kDsBytes), k, false);
      wait(shared.ds_peer_full[at.stage], at.parity);
      multiply_dq(dq, ds_peer.advance(at.stage * kDsBytes), k_peer, true);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();  // dK
      release(shared.q_empty[at.stage]);
      ptx::wgmma_wait_group<0>();
      ptx::keep_here(dq);
      bool masked = false;
      if (lane() == 0) {  // the lane that hands the block back
        const Block& block = shared.blocks[at.stage];
        masked = block.masked;
        unsent = first_tile(block, summer);
        if constexpr (kDeterministic) mine = shared.turns[at.stage];
      }
      masked = __shfl_sync(~0u, masked, 0);
      unsent = __shfl_sync(~0u, unsent, 0);
      if constexpr (kDeterministic) {
        mine = __shfl_sync(~0u, mine, 0);
        look_whose_turn();
      }
      // A masked K that is not finite makes dQ so, too.
      if (masked && !__all_sync(~0u, all_finite(dq))) {
        if constexpr (kDeterministic) await_turn();
        add_seen_keys(a, shared, work, summer, at.stage);
        if constexpr (kDeterministic) Turns::hand_on(shared.dq_turns[0], i);
        unsent = kNone;
      }
      __syncwarp();  // all lanes have read dS and the block
      release(shared.ds_empty[at.stage]);
      // The other waits for it only if it will use the buffer again.
      if (i + 2 < steps) release_to_peer(shared.ds_empty[at.stage]);
    }
    add_unsent(steps - 1);
  }

  // Stores this warp's rows of dK or dV, times `scale`. They go through the shared memory of K or V
  // (`keys`), from where TMA copies them.
  template <typename Rows>
  static __device__ __forceinline__ void store(const CUtensorMap& tensor, const Rows& rows,
                                               char* keys, const Work& work, int summer,
                                               const float (&sum)[kKeyFloats], float scale) {
    const uint32_t staged = ptx::shared_address(keys) + summer * kHalfPanels * kKvPanelBytes +
                            warp() * kWarpRows * kRowBytes;
    send_rows<T>(sum, {scale, scale}, staged, kKvPanelBytes, tensor, rows,
                 work.first_key + first_own_key() + warp() * kWarpRows);
  }

  // Puts this warp's rows of dK or dV into the accumulators of a shared block of keys: stores them
  // in this part's slice if deterministic, else adds them.
  static __device__ __forceinline__ void add_to_others(float* sums, const BackwardArguments& a,
                                                       const Work& work, int summer,
                                                       const float (&sum)[kKeyFloats]) {
    const int64_t row =
        backward::row_of_sums(a, work, kDeterministic) + first_own_key() + warp() * kWarpRows;
    float* tiles = sums + row * kHeadDim + summer * kKeyColumns / 8 * kTileFloats;
#pragma unroll
    for (int j = 0; j < kKeyColumns / 8; ++j) {
      const float v[4] = {sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]};
      if constexpr (kDeterministic) {
        backward::store_accumulator(tiles + j * kTileFloats, lane(), v);
      } else {
        backward::add_to_key_sums(tiles + j * kTileFloats, lane(), v);
      }
    }
  }

  // A named barrier: the scorer and the summers have read K and V for the last time.
  static constexpr int kKeysReadBarrier = 1, kKeyReaders = 128 * (1 + kSummers);

  static __device__ __forceinline__ void sum_and_store(const BackwardArguments& a, Shared& shared,
                                                       const Work& work, int summer) {
    float dk[kKeyFloats], dv[kKeyFloats];
#pragma unroll
    for (int i = 0; i < kKeyFloats; ++i) dk[i] = dv[i] = 0;
    if (work.steps > 0) sum_gradients(a, shared, work, summer, dk, dv);
    ptx::keep_here(dk);
    ptx::keep_here(dv);
    if (a.adds_keys) {
      add_to_others(a.dv_sums, a, work, summer, dv);
      add_to_others(a.dk_sums, a, work, summer, dk);
      return;
    }
    Delay::before_barrier();
    ptx::barrier_sync(kKeysReadBarrier, kKeyReaders);
    const int of_pair = 4 * (kSummers * ptx::cluster_ctarank() + summer) + warp();
    if (!adds_up<2 * 4 * kSummers>(a, work, of_pair, PieceWarp<>{}, dk, dv)) return;
    store(a.dv[summer], Rows{a}.key_gradients(work, a.dv_steps), shared.v, work, summer, dv, 1);
    store(a.dk[summer], Rows{a}.key_gradients(work, a.dk_steps), shared.k, work, summer, dk,
          a.scale);
    if (lane() == 0) ptx::cp_async_bulk_wait_group_read();
  }

  // ---- Copies, by a thread each

  static __device__ void load(const BackwardArguments& a, Shared& shared, const Work& work) {
    const int rank = ptx::cluster_ctarank();
    BackwardBlockLoads<BackwardPairs> loads(a, shared, work, work.first_key + first_own_key());
    loads.k();
    loads.v();
    const uint32_t full = ptx::shared_address(&shared.k_peer_full);
    ptx::mbarrier_arrive_expect_tx(full, sizeof shared.k_peer);
#pragma unroll
    for (int panel = 0; panel < kHalfPanels; ++panel) {
      Rows{a}
          .keys(work, a.k_steps)
          .load(ptx::shared_address(shared.k_peer) + panel * kKvPanelBytes, a.k,
                kKeyColumns * rank + panel * 64, work.first_key + kBlockKv * (1 - rank), full,
                ptx::CachePolicy::evict_first);
    }
    ptx::griddepcontrol_wait();
    for (int i = 0; i < work.steps; ++i, loads.step.advance(work)) {
      const Place at(i);
      wait(shared.q_empty[at.stage], at.parity ^ 1);
      loads.q(at.stage);
      wait(shared.d_o_empty[0], i % 2 ^ 1);
      loads.d_o(0);
    }
  }

  // Sends dS of each block to the other thread block. The scorer has waited until both had used the
  // buffers, and the other has the same number of blocks.
  static __device__ void send_ds(Shared& shared, const Work& work) {
    const int peer = 1 - ptx::cluster_ctarank();
    for (int i = 0; i < work.steps; ++i) {
      const Place at(i);
      wait(shared.ds_full[at.stage], at.parity);
      const uint32_t full = ptx::shared_address(&shared.ds_peer_full[at.stage]);
      ptx::mbarrier_arrive_expect_tx(full, kDsBytes);
      ptx::cp_async_bulk_to_cluster(ptx::mapa(ptx::shared_address(shared.ds_peer[at.stage]), peer),
                                    ptx::shared_address(shared.ds[at.stage]), kDsBytes,
                                    ptx::mapa(full, peer));
    }
  }

  static __device__ __forceinline__ void run_roles(const BackwardArguments& a, Shared& shared,
                                                   const Work& work) {
    // The shuffle tells the compiler that the warpgroup index is the same in all lanes.
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
      ptx::setmaxnreg_dec<kProducerRegisters>();
      if (threadIdx.x == 0 && work.steps > 0) load(a, shared, work);
      if (threadIdx.x == 32) send_ds(shared, work);
      if constexpr (kDeterministic) {
        if (threadIdx.x == 64) {
          Turns::template pass_all<kBlockQ>(a, shared.dq_turns[0], work, ptx::cluster_ctarank());
        }
      }
    } else if (warpgroup == 1) {
      ptx::setmaxnreg_dec<kScorerRegisters>();
      if (work.steps > 0) compute_scores(a, shared, work);
      if (!a.adds_keys) ptx::barrier_arrive(kKeysReadBarrier, kKeyReaders);
    } else {
      ptx::setmaxnreg_inc<kSummerRegisters>();
      sum_and_store(a, shared, work, warpgroup - 2);
    }
  }
};

}  // namespace flashbench::kernels::sm90
