// What the main kernel of the backward pass for Hopper is compiled for: its configurations, and the
// sizes of blocks, registers and shared memory that follow from one.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/backward/work.cuh"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_dq_writers.cuh"
#include "kernels/sm90/backward_queue.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

struct BackwardConfig {
  int head_dim;                // 64, 80, 96 or 128
  int block_q;                 // queries per step: 64, or 128 with dq_warpgroup
  int stages;                  // buffers for blocks of Q in shared memory
  bool dq_warpgroup = false;   // producer's warpgroup computes dQ; head_dim 64
  bool deterministic = false;  // thread blocks add to a block of dQ in the order of their keys
  bool by_request = false;     // requests of different lengths
  bool in_pieces = false;      // the last blocks of keys of a dense problem are in pieces
};

// The configuration that is compiled for a head_dim.
constexpr BackwardConfig backward_config(int head_dim, bool deterministic = false,
                                         bool by_request = false, bool in_pieces = false) {
  const bool dq_warpgroup = head_dim == 64 && !(deterministic && by_request);
  return {.head_dim = head_dim,
          .block_q = dq_warpgroup ? 128 : 64,
          .stages = dq_warpgroup ? 3 : 2,
          .dq_warpgroup = dq_warpgroup,
          .deterministic = deterministic,
          .by_request = by_request,
          .in_pieces = in_pieces};
}

template <BackwardConfig kConfig, typename Delay>
struct BackwardShapes {
  static constexpr int kHeadDim = kConfig.head_dim;
  static constexpr int kBlockQ = kConfig.block_q;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kConsumers = 2;
  static constexpr int kBlockKv = kConsumers * kConsumerRows;
  static constexpr bool kDqWarpgroup = kConfig.dq_warpgroup;
  static_assert(!kDqWarpgroup || kHeadDim == 64);
  // Whether K and V, the left operands of S and dP, are kept in registers.
  static constexpr bool kKeysInRegisters = kHeadDim == 64 && !kDqWarpgroup;
  // How a deterministic kernel adds dQ to memory: see backward_dq_in_turn.cuh and
  // backward_dq_writers.cuh.
  static constexpr bool kDqInTurn = kConfig.deterministic && kDqWarpgroup;
  static constexpr bool kHasWriters = kConfig.deterministic && !kDqWarpgroup;
  // Whether consumers compute dQ^T and stage it in shared memory, from where TMA adds it to memory
  // (see backward_dq_staging.cuh). Each has 64 columns.
  static constexpr bool kDqTransposed = kHeadDim == 128 && !kConfig.deterministic;
  // Whether thread blocks are persistent (see backward_queue.cuh). By request, where all warps
  // compute, they gain too little (docs/kernel-log.md, backward 78 and 81).
  static constexpr bool kPersistent = !kHasWriters && !(kDqWarpgroup && kConfig.by_request);
  // Whether the producer's warps copy for them alone (see backward_copies.cuh), or compute dQ, too
  // (see backward_dq_warpgroup.cuh).
  static constexpr bool kHasCopiers = kPersistent && !kDqWarpgroup;
  static constexpr int kKBuffers = kPersistent ? 2 : 1;
  static constexpr int kVBuffers = kHasCopiers && !kDqTransposed ? 2 : 1;
  // Buffers for D. The consumers have read it when they hand dS over, a block before they are done
  // with dO.
  static constexpr int kDStages = kDqInTurn ? 2 : kStages;
  static __device__ __forceinline__ int d_stage(const RingPosition<kStages>& d_o) {
    return kDqInTurn ? (d_o.stage ^ static_cast<int>(d_o.parity)) % 2 : d_o.stage;
  }
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kConsumerThreads = 128 * kConsumers;

  static constexpr int kProducerRegisters = kDqWarpgroup ? 56 : 24;
  static constexpr int kConsumerRegisters = kDqWarpgroup ? 224 : 240;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= kWarpgroupRegisters);

  // A part of the last panel is unused at head_dim 80 and 96.
  static constexpr int kPanels = (kHeadDim + 63) / 64;
  static constexpr int kQPanelBytes = kBlockQ * kRowBytes;
  static constexpr int kKvPanelBytes = kBlockKv * kRowBytes;
  static constexpr int kQBytes = kPanels * kQPanelBytes;
  static constexpr int kKvBytes = kPanels * kKvPanelBytes;
  static constexpr int kDsBytes = kBlockKv / 64 * kQPanelBytes;

  // Registers per thread, for S^T [64 keys, kBlockQ] and for dK and dV [64 keys, kHeadDim].
  static constexpr int kSFloats = kBlockQ / 2;
  static constexpr int kKeyFloats = kHeadDim / 2;
  static constexpr int kSteps = kBlockQ / 16;  // of 16 queries in P^T and dS^T as left operands

  // Columns of the accumulators in memory.
  static constexpr int kSumsColumns = (kHeadDim + 31) / 32 * 32;
  static_assert(!kHasWriters || kSumsColumns == kHeadDim);

  // A consumer computes half of the columns of dQ, rounded up to a panel; those from head_dim on
  // are zeros. Where thread blocks are persistent, the last consumer computes only as many as the
  // accumulators have. If dQ has a warpgroup, this computes one part after the other, each with as
  // many columns as its registers hold.
  static constexpr int kDqRows = kDqWarpgroup ? kConsumerRows : kBlockQ;
  static constexpr int kDqColumns = kDqWarpgroup ? 32 : kPanels * 64 / kConsumers;
  static constexpr int kDqColumnsOfLast =
      kSumsColumns % kDqColumns == 0 ? kDqColumns : kSumsColumns % kDqColumns;
  static constexpr int kDqFloats = kDqColumns / 2;
  static constexpr int kDqTiles = kDqColumns / 8;  // 16 queries x 8 columns each
  static constexpr int kTileFloats = 128;
  using Writers = DqWriters<kHeadDim, kBlockQ, Delay>;

  // The position in shared memory of a column of K: its number. Without this arithmetic ptxas
  // orders the loop at head_dim 128 in another way, which was 1% slower.
  static __device__ constexpr int stored_column(int column) {
    return column / kHeadDim * kPanels * 64 + column % kHeadDim;
  }

  static constexpr bool kByRequest = kConfig.by_request;
  static constexpr bool kDeterministic = kConfig.deterministic;
  static constexpr bool kPairs = false, kSharesWork = kByRequest && !kPersistent;
  using Work =
      std::conditional_t<kByRequest, backward::RequestWork<kBlockQ, kBlockKv, kDeterministic>,
                         backward::Work<kBlockQ, kBlockKv, kDeterministic, kConfig.in_pieces>>;
  using Rows = BackwardRows<kByRequest>;

  static constexpr int kWarps = 4 * kConsumers;  // of the consumers
  // Read by the consumers, and by three copying warps or dQ's warpgroup.
  using Queue = WorkQueue<Work, kWarps + (kHasCopiers ? 3 : 4), Delay>;

  // With kDqWarpgroup: whether consumers tell by flags that a K in a masked block is not finite.
  // Where they have no registers to find out, dQ itself shows it, if it is not finite.
  static constexpr bool kFlags = !kByRequest;

  // With kDqInTurn: of a block in q, its first query, the tile of dQ's sums that begins with it,
  // and the thread block's turn there.
  struct LoadedBlock {
    int query, tile, turn;
  };

  struct Shared {
    alignas(1024) char k[kKBuffers * kKvBytes];
    alignas(1024) char v[kVBuffers * kKvBytes];
    alignas(1024) char q[kStages][kQBytes];
    alignas(1024) char d_o[kStages][kQBytes];
    alignas(1024) char ds[2][kDsBytes];  // [queries, keys]
    typename Writers::Shared dq_writers[kHasWriters ? 1 : 0];
    // With kDqTransposed: each consumer's columns of a block of dQ, or its rows of dV.
    alignas(1024) float dq[kDqTransposed ? kConsumers : 0][kBlockQ * 64];
    // With kDqInTurn: each warp's rows of the first half of a block of dQ.
    alignas(128) float dq_half[kDqInTurn ? 4 : 0][kWarpRows * kHeadDim];
    alignas(128) float logsumexp[kStages][kBlockQ];
    alignas(128) float d[kDStages][kBlockQ];
    typename Queue::Shared queue[kPersistent ? 1 : 0];
    LoadedBlock blocks[kDqInTurn ? kStages : 0];
    uint64_t k_full[kKBuffers], v_full[kVBuffers];
    // With kHasCopiers: dK and dV are staged in place of K and V (with kDqTransposed, dV in place
    // of dQ); these may be loaded again.
    uint64_t kv_staged[kHasCopiers ? 2 : 0], kv_empty[kHasCopiers ? 2 : 0];
    uint64_t v_empty[kDqTransposed ? 1 : 0];
    // Whether each warp's rows of dK and dV, of a buffer in which they are staged, are to be
    // stored.
    bool stores[kPersistent && Work::kMaySplit ? 2 : 0][kWarps];
    // With kDqWarpgroup: the barriers of the buffers of dS. With kFlags, or kDqTransposed: whether
    // the scores of each warp are finite (see all_finite).
    uint64_t ds_full[kDqWarpgroup ? 2 : 0], ds_empty[kDqWarpgroup ? 2 : 0];
    uint64_t ds_half_read[kDqInTurn ? 1 : 0];
    bool finite[(kDqWarpgroup && kFlags) || kDqTransposed ? 2 : 0][4 * kConsumers];
    uint64_t q_full[kStages], q_empty[kStages];      // Q and the logsumexp
    uint64_t d_o_full[kStages], d_o_empty[kStages];  // dO and D
    int ticket;
    alignas(16) char work[kByRequest ? sizeof(Work) : 0];
  };

  // Whether to store dK and dV of the rows of a warp that begin with `row`, from a buffer.
  static __device__ __forceinline__ bool stores(const Shared& shared, int buffer, int row) {
    if constexpr (kPersistent && Work::kMaySplit) return shared.stores[buffer][row / kWarpRows];
    return true;
  }

  using Step = backward::Step;
  using Block = BackwardBlock<kBlockQ, kBlockKv>;

  static __device__ void initialise_barriers(Shared& shared) {
    const auto init = [](uint64_t& barrier, int arrivals) {
      ptx::mbarrier_init(ptx::shared_address(&barrier), arrivals);
    };
    for (uint64_t& full : shared.k_full) init(full, 1);
    for (uint64_t& full : shared.v_full) init(full, 1);
    for (int i = 0; i < (kHasCopiers ? 2 : 0); ++i) {
      init(shared.kv_staged[i], kWarps);
      init(shared.kv_empty[i], 1);
    }
    if constexpr (kDqTransposed) init(shared.v_empty[0], kWarps);
    if constexpr (kPersistent) Queue::initialise_barriers(*shared.queue);
    for (int i = 0; i < (kDqWarpgroup ? 2 : 0); ++i) {
      init(shared.ds_full[i], kWarps);
      init(shared.ds_empty[i], 4);
    }
    for (int i = 0; i < kStages; ++i) {
      init(shared.q_full[i], 1);
      init(shared.q_empty[i], kWarps);
      init(shared.d_o_full[i], 1);
      init(shared.d_o_empty[i], kWarps);
    }
    if constexpr (kDqInTurn) init(shared.ds_half_read[0], 4);
    if constexpr (kHasWriters) Writers::initialise_barriers(*shared.dq_writers);
    ptx::fence_mbarrier_init();
  }
};

}  // namespace flashbench::kernels::sm90
