// The main kernel of attention's backward pass for Hopper (sm_90a). A thread block owns a block of
// keys of one K/V head and loops over the blocks of queries that see any of them:
//   S = Q K^T,  P = 2^(c S - L),  dP = dO V^T,  dS = P o (dP - D)
//   dV += P^T dO,  dK += dS^T Q,  dQ += dS K.
// dK and dV stay in registers; the thread blocks add dQ to fp32 accumulators in global memory.
//
// One warp loads K and V once by TMA, and Q and dO ahead of their use. Two consumers share the
// products of a block. S and dP are computed transposed. Up to head_dim 128 each consumer owns half
// of the keys. The accumulator fragments of P^T and dS^T, once rounded, are then the left operands
// of dV and dK, and dS goes to shared memory only for dQ. Each consumer computes half of the
// columns of dQ, over all keys of the block. dP runs during the exponentials, dV during the
// computation of dS, and dK while dQ is added to memory.
//
// At head_dim 64, unless deterministic, a block has 128 queries, and the producer's warpgroup
// computes dQ. The consumers therefore need not wait for each other. They take turns instead: one
// computes exponentials while the tensor cores work for the other.
//
// At 256, and at 192 if deterministic (else see backward_by_gradient.cuh), dK and dV of 64 keys
// exceed the registers of a consumer. Both consumers therefore work on the same 64 keys; each owns
// half of the columns of dK and dV and half of the queries of S, so P goes through shared memory
// too. A block of dQ is as large for 64 keys as for 128: ordinary instructions would take longer to
// add it to memory than the products take, so TMA adds it.
//
// In the deterministic kernel, thread blocks go backwards over the blocks of queries (see
// kernels/backward/work.cuh), and other warps add dQ to memory (see backward_dq.cuh).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/backward/accumulator.cuh"
#include "kernels/backward/work.cuh"
#include "kernels/ptx/barrier.h"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/cp_reduce_async_bulk.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/ldmatrix.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/setmaxnreg.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/stmatrix.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_dq.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

struct BackwardConfig {
  int head_dim;                // 64, 96, 128, 192 or 256
  int block_q;                 // queries per step: 64, or 128 with dq_warpgroup at equal lengths
  int stages;                  // buffers for blocks of Q in shared memory
  bool dq_warpgroup = false;   // producer's warpgroup computes dQ; head_dim 64, not deterministic
  bool deterministic = false;  // thread blocks add to a block of dQ in the order of their keys
  bool by_request = false;     // requests of different lengths
};

// The configuration that is compiled for a head_dim.
constexpr BackwardConfig backward_config(int head_dim, bool deterministic = false,
                                         bool by_request = false) {
  const bool dq_warpgroup = head_dim == 64 && !deterministic;
  return {.head_dim = head_dim,
          .block_q = dq_warpgroup && !by_request ? 128 : 64,
          .stages = !dq_warpgroup ? 2
                    : by_request  ? 4
                                  : 3,
          .dq_warpgroup = dq_warpgroup,
          .deterministic = deterministic,
          .by_request = by_request};
}

template <typename T, BackwardConfig kConfig, typename Delay = NoDelay>
struct Backward : Barriers<Delay> {
  using Barriers<Delay>::arrive, Barriers<Delay>::wait;

  static constexpr int kHeadDim = kConfig.head_dim;
  static constexpr int kBlockQ = kConfig.block_q;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kConsumers = 2;
  // Whether a consumer owns half of the columns instead of half of the keys.
  static constexpr bool kHalfColumns = kHeadDim > 128;
  static constexpr int kBlockKv = kHalfColumns ? kConsumerRows : kConsumers * kConsumerRows;
  static constexpr bool kDqWarpgroup = kConfig.dq_warpgroup;
  static_assert(!kDqWarpgroup || (kHeadDim == 64 && !kConfig.deterministic));
  // Whether K and V, the left operands of S and dP, are kept in registers.
  static constexpr bool kKeysInRegisters = kHeadDim == 64 && !kDqWarpgroup;
  static constexpr bool kHasWriters = kConfig.deterministic;      // see backward_dq.cuh
  static constexpr bool kSendsDq = kHalfColumns && !kHasWriters;  // TMA adds dQ to memory
  static constexpr int kDOStages = kHalfColumns ? 1 : kStages;    // buffers for blocks of dO
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kConsumerThreads = 128 * kConsumers;

  static constexpr int kProducerRegisters = kDqWarpgroup ? 56 : 24;
  static constexpr int kConsumerRegisters = kDqWarpgroup ? 224 : 240;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= kWarpgroupRegisters);

  // Shapes per consumer: S^T [64 keys, kSQueries], dK and dV [64 keys, kKeyColumns].
  static constexpr int kSQueries = kHalfColumns ? kBlockQ / kConsumers : kBlockQ;
  static constexpr int kKeyColumns = kHalfColumns ? kHeadDim / kConsumers : kHeadDim;

  // Each consumer's columns begin at a panel boundary; what they leave of their last panel is
  // unused.
  static constexpr int kKeyPanels = (kKeyColumns + 63) / 64;
  static constexpr int kPanels = kHeadDim / kKeyColumns * kKeyPanels;
  static constexpr int kQPanelBytes = kBlockQ * kRowBytes;
  static constexpr int kKvPanelBytes = kBlockKv * kRowBytes;
  static constexpr int kQBytes = kPanels * kQPanelBytes;
  static constexpr int kKvBytes = kPanels * kKvPanelBytes;
  static constexpr int kDsBytes = kBlockKv / 64 * kQPanelBytes;

  // Registers per thread.
  static constexpr int kSFloats = kSQueries / 2;
  static constexpr int kKeyFloats = kKeyColumns / 2;
  static constexpr int kSteps = kSQueries / 16;  // of 16 queries in P^T and dS^T as left operands

  // A consumer computes half of the columns of dQ; those from head_dim on are zeros. If dQ has a
  // warpgroup, this computes one part after the other, each with as many columns as its registers
  // hold.
  static constexpr int kDqRows = kDqWarpgroup ? kConsumerRows : kBlockQ;
  static constexpr int kDqColumns = kDqWarpgroup   ? 32
                                    : kHalfColumns ? kKeyColumns
                                                   : kPanels * 64 / kConsumers;
  static constexpr int kDqFloats = kDqColumns / 2;
  static constexpr int kDqTiles = kDqColumns / 8;  // 16 queries x 8 columns each
  static constexpr int kTileFloats = 128;
  static constexpr int kStagedTiles = kSendsDq ? kDqTiles / 2 : 0;  // in shared memory
  static constexpr int kDqPieces = kHalfColumns ? 2 : 1;            // per step, for the writers
  using Writers = DqWriters<kHeadDim, kBlockQ, kDqColumns, kDqPieces, Delay>;

  // The position in shared memory of a column of K, V, Q or dO.
  static __device__ constexpr int stored_column(int column) {
    return column / kKeyColumns * kKeyPanels * 64 + column % kKeyColumns;
  }

  static constexpr bool kByRequest = kConfig.by_request;
  using Work = std::conditional_t<kByRequest,
                                  backward::RequestWork<kBlockQ, kBlockKv, kConfig.deterministic>,
                                  backward::Work<kBlockQ, kBlockKv, kConfig.deterministic>>;
  using Rows = BackwardRows<kByRequest>;

  // With kDqWarpgroup: whether consumers tell by flags that a K in a masked block is not finite.
  // Where they have no registers to find out, dQ itself shows it, if it is not finite.
  static constexpr bool kFlags = !kByRequest;

  struct Shared {
    alignas(1024) char k[kKvBytes];
    alignas(1024) char v[kKvBytes];
    alignas(1024) char q[kStages][kQBytes];
    alignas(1024) char d_o[kDOStages][kQBytes];
    // dS [queries, keys]; with kHalfColumns, dS^T and P^T [keys, queries].
    alignas(1024) char ds[2][kDsBytes];
    alignas(1024) char p[kHalfColumns ? 2 : 0][kDsBytes];
    alignas(16) float dq[4 * kConsumers][kStagedTiles * kTileFloats];  // per warp
    typename Writers::Shared dq_writers[kHasWriters ? 1 : 0];
    alignas(128) float logsumexp[kStages][kBlockQ];
    alignas(128) float d[kDOStages][kBlockQ];
    uint64_t k_full, v_full;
    // With kDqWarpgroup: the barriers of the buffers of dS and, with kFlags, whether the scores of
    // each warp are finite (see all_finite).
    uint64_t ds_full[kDqWarpgroup ? 2 : 0], ds_empty[kDqWarpgroup ? 2 : 0];
    bool finite[kDqWarpgroup && kFlags ? 2 : 0][4 * kConsumers];
    uint64_t q_full[kStages], q_empty[kStages];          // Q and the logsumexp
    uint64_t d_o_full[kDOStages], d_o_empty[kDOStages];  // dO and D
    int ticket;
    alignas(16) char work[kByRequest ? sizeof(Work) : 0];
  };

  using Step = backward::Step;
  using Block = BackwardBlock<kBlockQ, kBlockKv>;

  static __device__ void initialise_barriers(Shared& shared) {
    constexpr int kWarps = 4 * kConsumers;
    const auto init = [](uint64_t& barrier, int arrivals) {
      ptx::mbarrier_init(ptx::shared_address(&barrier), arrivals);
    };
    init(shared.k_full, 1);
    init(shared.v_full, 1);
    for (int i = 0; i < (kDqWarpgroup ? 2 : 0); ++i) {
      init(shared.ds_full[i], kWarps);
      init(shared.ds_empty[i], 4);
    }
    for (int i = 0; i < kStages; ++i) {
      init(shared.q_full[i], 1);
      init(shared.q_empty[i], kWarps);
    }
    for (int i = 0; i < kDOStages; ++i) {
      init(shared.d_o_full[i], 1);
      init(shared.d_o_empty[i], kWarps);
    }
    if constexpr (kHasWriters) Writers::initialise_barriers(*shared.dq_writers);
    ptx::fence_mbarrier_init();
  }

  // ---- The producer

  // Issues the TMA loads: K and V once; Q with the logsumexp, and dO with D, for each block of
  // queries.
  struct Loads {
    const BackwardArguments& a;
    Shared& shared;
    const Work& work;
    Step step;
    RingPosition<kStages> q_ring;
    RingPosition<kDOStages> d_o_ring;

    __device__ Loads(const BackwardArguments& a_, Shared& shared_, const Work& work_)
        : a(a_), shared(shared_), work(work_), step(work_) {}

    __device__ void first() {
      keys(a.k, a.k_steps, shared.k, shared.k_full);
      q();
      keys(a.v, a.v_steps, shared.v, shared.v_full);
      d_o();
    }
    __device__ void next() {
      q();
      d_o();
    }

   private:
    __device__ void keys(const CUtensorMap& tensor, const RowSteps& steps, char* to,
                         uint64_t& full) const {
      const uint32_t barrier = ptx::shared_address(&full);
      ptx::mbarrier_arrive_expect_tx(barrier, kKvBytes);
      load_rows<kPanels, kKvPanelBytes, kKeyColumns>(tensor, to, barrier, Rows{a}.keys(work, steps),
                                                     work.first_key, ptx::CachePolicy::evict_first);
    }
    __device__ void q() {
      const int stage = q_ring.stage;
      if constexpr (!kDqWarpgroup) wait(shared.q_empty[stage], q_ring.parity ^ 1);
      queries(a.q, a.q_steps, shared.q[stage], a.logsumexp, shared.logsumexp[stage],
              shared.q_full[stage]);
      q_ring.advance();
    }
    __device__ void d_o() {
      const int stage = d_o_ring.stage;
      if constexpr (!kDqWarpgroup) wait(shared.d_o_empty[stage], d_o_ring.parity ^ 1);
      queries(a.d_o, a.d_o_steps, shared.d_o[stage], a.d, shared.d[stage], shared.d_o_full[stage]);
      d_o_ring.advance();
      step.advance(work);
    }
    __device__ void queries(const CUtensorMap& tensor, const RowSteps& steps, char* to,
                            const CUtensorMap& statistics, float* to_statistics,
                            uint64_t& full) const {
      const uint32_t barrier = ptx::shared_address(&full);
      constexpr int kStatisticsBytes = kBlockQ * static_cast<int>(sizeof(float));
      ptx::mbarrier_arrive_expect_tx(barrier, kQBytes + kStatisticsBytes);
      load_rows<kPanels, kQPanelBytes, kKeyColumns>(
          tensor, to, barrier, Rows{a}.queries(work, steps, step.head),
          Rows{a}.query_0() + step.block * kBlockQ, ptx::CachePolicy::evict_last);
      ptx::cp_async_bulk_tensor_2d(ptx::shared_address(to_statistics), statistics,
                                   work.first_query_row() + step.block * kBlockQ,
                                   work.batch * a.q_heads + step.head, barrier);
    }
  };

  static __device__ void produce(const BackwardArguments& a, Shared& shared, const Work& work) {
    if (work.steps == 0) return;
    Loads loads(a, shared, work);
    loads.first();
    for (int i = 1; i < work.steps; ++i) loads.next();
  }

  // ---- A consumer

  // A consumer's rows of K or V as the left operand of a product, in shared memory or, if they fit,
  // in registers. Registers halve what such a product reads from shared memory.
  struct KeysInRegisters {
    uint32_t words[kHeadDim / 16][4];
  };
  using Keys = std::conditional_t<kKeysInRegisters, KeysInRegisters, ptx::WgmmaMatrix>;

  // `rows` describes the consumer's rows in shared memory. `keys` is the whole block, in which the
  // warp's rows begin at `warp_key`.
  static __device__ __forceinline__ Keys left_operand(ptx::WgmmaMatrix rows, const char* keys,
                                                      int warp_key) {
    if constexpr (kKeysInRegisters) {
      Keys loaded;
      const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 16;
#pragma unroll
      for (int step = 0; step < kHeadDim / 16; ++step) {
        const int chunk = step * 2 + lane / 16;
        ptx::ldmatrix_x4(
            loaded.words[step],
            ptx::shared_address(keys) + (warp_key + row) * kRowBytes + (chunk ^ row % 8) * 16);
      }
      return loaded;
    } else {
      return rows;
    }
  }

  // Starts product = A B^T for A [64, kHeadDim] and B [kSQueries, kHeadDim].
  static __device__ __forceinline__ void issue_transposed(float (&product)[kSFloats], const Keys& a,
                                                          ptx::WgmmaMatrix b) {
    ptx::keep_here(product);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      using Product = ptx::Wgmma<kSQueries>;
      const int column = stored_column(step * 16), panel = column / 64, bytes = column % 64 * 2;
      const ptx::WgmmaMatrix queries = b.advance(panel * kQPanelBytes + bytes);
      if constexpr (kKeysInRegisters) {
        Product::template multiply_registers<T, ptx::RowsAlong::k>(product, a.words[step], queries,
                                                                   step != 0);
      } else {
        Product::template multiply_shared<T>(product, a.advance(panel * kKvPanelBytes + bytes),
                                             queries, step != 0);
      }
    }
  }

  // Starts sum += A B for A [64, kBlockQ] in registers and B [kBlockQ, kKeyColumns].
  static __device__ __forceinline__ void issue_sum(float (&sum)[kKeyFloats],
                                                   const uint32_t (&a)[kSteps][4],
                                                   ptx::WgmmaMatrix b) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::Wgmma<kKeyColumns>::template multiply_registers<T>(sum, a[step],
                                                              b.advance(step * 16 * kRowBytes));
    }
  }

  // The same for A in shared memory.
  static __device__ __forceinline__ void issue_sum(float (&sum)[kKeyFloats], ptx::WgmmaMatrix a,
                                                   ptx::WgmmaMatrix b) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBlockQ / 16; ++step) {
      ptx::Wgmma<kKeyColumns>::template multiply_shared<T, ptx::RowsAlong::k, ptx::RowsAlong::mn>(
          sum, a.advance(step * 32), b.advance(step * 16 * kRowBytes), true);
    }
  }

  // Starts dQ = dS K for kDqColumns columns of K.
  static __device__ __forceinline__ void issue_dq(float (&dq)[kDqFloats], ptx::WgmmaMatrix ds,
                                                  ptx::WgmmaMatrix k) {
    ptx::keep_here(dq);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBlockKv / 16; ++step) {
      using Product = ptx::Wgmma<kDqColumns>;
      const ptx::WgmmaMatrix keys = k.advance(step * 16 * kRowBytes);
      if constexpr (kHalfColumns) {
        Product::template multiply_shared<T, ptx::RowsAlong::mn, ptx::RowsAlong::mn>(
            dq, ds.advance(step * 16 * kRowBytes), keys, step != 0);
      } else {
        Product::template multiply_shared<T, ptx::RowsAlong::k, ptx::RowsAlong::mn>(
            dq, ds.advance(step / 4 * kQPanelBytes + step % 4 * 32), keys, step != 0);
      }
    }
  }

  // Rounds an accumulator fragment to the left operand of a product over queries.
  static __device__ __forceinline__ void round(const float (&x)[kSFloats],
                                               uint32_t (&rounded)[kSteps][4]) {
#pragma unroll
    for (int i = 0; i < kSFloats; i += 2) {
      rounded[i / 8][i / 2 % 4] = ptx::cvt_rn_x2<T>(x[i], x[i + 1]);
    }
  }

  // The element at (row, column) of a matrix in shared memory with panels of this size.
  static __device__ float element(const char* matrix, int panel_bytes, int row, int column) {
    const int chunk = column % 64 / 8 ^ row % 8;
    const char* at = matrix + column / 64 * panel_bytes + row * kRowBytes + chunk * 16;
    return static_cast<float>(reinterpret_cast<const T*>(at)[column % 8]);
  }

  // The part of a block that a thread works on. Rows and columns count from the start of the block.
  struct Part {
    int consumer, warp, lane;
    int first_row;                      // its consumer's first key
    int first_q_row;                    // its consumer's first query
    int warp_key;                       // its warp's first key
    int first_query;                    // its own first query
    int first_key_column;               // its consumer's first column of dK and dV
    int first_dq_row, first_dq_column;  // start of its warpgroup's part of dQ
    // Offset in a buffer of dS or P of the row that it addresses in stmatrix. stmatrix stores 16
    // keys of its warp.
    uint32_t ds_store;

    __device__ explicit Part(int consumer_)
        : consumer(consumer_),
          warp(static_cast<int>(threadIdx.x) / 32 % 4),
          lane(static_cast<int>(threadIdx.x) % 32),
          first_row(kHalfColumns ? 0 : kConsumerRows * consumer),
          first_q_row(kHalfColumns ? kSQueries * consumer : 0),
          warp_key(first_row + kWarpRows * warp),
          first_query(first_q_row + lane % 4 * 2),
          first_key_column(kHalfColumns ? kKeyColumns * consumer : 0),
          first_dq_row(0),
          first_dq_column(kDqColumns * consumer) {
      if constexpr (kHalfColumns) {
        const int row = lane % 16, chunk = kSQueries / 8 * consumer + lane / 16;
        ds_store = (warp_key + row) * kRowBytes + (chunk ^ row % 8) * 16;
      } else {  // transposed
        const int row = lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
        ds_store = consumer * kQPanelBytes + row * kRowBytes + (chunk ^ lane % 8) * 16;
      }
    }
  };

  // The operands of a consumer's products.
  struct Operands {
    ptx::WgmmaMatrix k_rows, v_rows;          // its keys
    ptx::WgmmaMatrix q_rows, d_o_rows;        // its queries of S and dP
    ptx::WgmmaMatrix q_columns, d_o_columns;  // its columns of dK and dV
    ptx::WgmmaMatrix k_columns;               // its columns of dQ
    ptx::WgmmaMatrix ds, p;

    __device__ Operands(const Shared& shared, const Part& part)
        : k_rows(of(shared, offsetof(Shared, k), kKvPanelBytes, part.first_row)),
          v_rows(of(shared, offsetof(Shared, v), kKvPanelBytes, part.first_row)),
          q_rows(of(shared, offsetof(Shared, q), kQPanelBytes, part.first_q_row)),
          d_o_rows(of(shared, offsetof(Shared, d_o), kQPanelBytes, part.first_q_row)),
          q_columns(of(shared, offsetof(Shared, q), kQPanelBytes, 0,
                       stored_column(part.first_key_column))),
          d_o_columns(of(shared, offsetof(Shared, d_o), kQPanelBytes, 0,
                         stored_column(part.first_key_column))),
          k_columns(of(shared, offsetof(Shared, k), kKvPanelBytes, 0,
                       stored_column(part.first_dq_column))),
          ds(of(shared, offsetof(Shared, ds), kQPanelBytes)),
          p(of(shared, offsetof(Shared, p), kQPanelBytes)) {}

    // The matrix at `offset` in shared memory, starting at this row and column. All matrices derive
    // from one address, so that the compiler needs few registers for them.
    static __device__ ptx::WgmmaMatrix of(const Shared& shared, int offset, int panel_bytes,
                                          int row = 0, int column = 0) {
      return ptx::WgmmaMatrix(ptx::shared_address(&shared), static_cast<uint32_t>(panel_bytes))
          .advance(offset + column / 64 * panel_bytes + row * kRowBytes +
                   column % 64 * static_cast<int>(sizeof(T)));
    }
  };

  // The mask of a thread's part of S^T. In the thread's row h (0 or 1), column c is visible if
  // from[h] <= c < end[h]. Columns count from the thread's first. All rows have the same end unless
  // there are windows.
  struct Visible {
    static constexpr int kEnds = Work::kKnowsWindows ? 2 : 1;
    int from[2], end[kEnds];

    __device__ Visible(const BackwardArguments& a, const Work& work, const Part& part,
                       const Block& block) {
      const int first = block.first_query + part.first_query;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = work.first_key + part.warp_key + part.lane / 4 + 8 * half;
        from[half] = key < work.key_end(a) ? key - work.diagonal(a) - first : kBlockQ;
        if constexpr (Work::kKnowsWindows) {
          end[half] = min(work.q_len(a), key - work.first_from(a) + 1) - first;
        }
      }
      if constexpr (!Work::kKnowsWindows) end[0] = work.q_len(a) - first;
    }
    __device__ bool operator()(int i) const {
      const int column = i / 4 * 8 + i % 2, half = i / 2 % 2;
      return column >= from[half] && column < end[half % kEnds];
    }
    // Selects rather than multiplies by 0: a masked element may be NaN.
    __device__ void select(float (&x)[kSFloats]) const {
#pragma unroll
      for (int i = 0; i < kSFloats; ++i) x[i] = (*this)(i) ? x[i] : 0;
    }
  };

  // Whether all scores of a thread are finite. A row of K that is not finite shows in the scores of
  // all queries, whether they see it or not.
  template <int kCount>
  static __device__ __forceinline__ bool all_finite(const float (&s)[kCount]) {
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) finite &= fabsf(s[i]) < INFINITY;
    return finite;
  }

  // Replaces S by P. `logsumexp` holds the logsumexp of the block's queries, in base 2.
  static __device__ __forceinline__ void exponentiate(float (&s)[kSFloats], const float* logsumexp,
                                                      int first_query, float scale_log2) {
#pragma unroll
    for (int i = 0; i < kSFloats; i += 4) {
      const float2 l = *reinterpret_cast<const float2*>(&logsumexp[i * 2 + first_query]);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        s[i + x] = ptx::ex2_approx_ftz(__fmaf_rn(s[i + x], scale_log2, x % 2 == 0 ? -l.x : -l.y));
      }
    }
  }

  // Replaces dP by dS. `d` holds D of the block's queries.
  static __device__ __forceinline__ void multiply_by(const float (&p)[kSFloats],
                                                     float (&dp)[kSFloats], const float* d,
                                                     int first_query) {
#pragma unroll
    for (int i = 0; i < kSFloats; i += 4) {
      const float2 row = *reinterpret_cast<const float2*>(&d[i * 2 + first_query]);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        dp[i + x] = p[i + x] * (dp[i + x] - (x % 2 == 0 ? row.x : row.y));
      }
    }
  }

  // Stores dS or P for the products that read it from shared memory.
  static __device__ __forceinline__ void store_operand(const uint32_t (&operand)[kSteps][4],
                                                       const char* buffer, const Part& part) {
    const uint32_t to = ptx::shared_address(buffer) + part.ds_store;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if constexpr (kHalfColumns) {
        ptx::stmatrix_x4(to ^ i * 32, operand[i]);
      } else {
        ptx::stmatrix_x4_trans(to + i * 16 * kRowBytes, operand[i]);
      }
    }
  }

  // The accumulators of a warp's part of a block of dQ.
  static __device__ __forceinline__ float* dq_tiles(const BackwardArguments& a, const Part& part,
                                                    const Block& block) {
    return a.dq_sums + block.first_row * kHeadDim +
           ((part.first_dq_row / kWarpRows + part.warp) * kHeadDim + part.first_dq_column) / 8 *
               kTileFloats;
  }

  // Whether dQ has this column; the last consumer's columns may extend beyond its end.
  static __device__ __forceinline__ bool is_in_head(int column) {
    return kHeadDim % kDqColumns == 0 || column < kHeadDim;
  }

  // Adds a warp's part of a block of dQ to the accumulators in global memory.
  static __device__ __forceinline__ void add_dq(float* tiles, const Part& part,
                                                const float (&dq)[kDqFloats]) {
#pragma unroll
    for (int j = 0; j < kDqTiles; ++j) {
      if (!is_in_head(part.first_dq_column + 8 * j)) break;
      const float v[4] = {dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]};
      backward::add_to_accumulator(tiles + j * kTileFloats, part.lane, v);
    }
  }

  // Has TMA add half of a warp's part of dQ from shared memory while the warp continues. First
  // waits until TMA has read the half that was sent before.
  template <int kHalf>
  static __device__ __forceinline__ void send_dq(float (&staged)[kStagedTiles * kTileFloats],
                                                 float* tiles, int lane,
                                                 const float (&dq)[kDqFloats]) {
    if (lane == 0) ptx::cp_async_bulk_wait_group_read_0();
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kStagedTiles; ++j) {
      const float* v = dq + 4 * (kHalf * kStagedTiles + j);
      *reinterpret_cast<float4*>(staged + j * kTileFloats +
                                 backward::accumulator_index(lane, 0)) = {v[0], v[1], v[2], v[3]};
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
      ptx::cp_reduce_async_bulk_add_f32(tiles + kHalf * kStagedTiles * kTileFloats,
                                        ptx::shared_address(staged), sizeof staged);
      ptx::cp_async_bulk_commit_group();
    }
  }

  // The keys in the block that a query sees. Those of the first query of its block end with
  // `first`, those of each further query one later, up to `end`. With a window those of the first
  // query begin with `begin`, those of each further query one later, too.
  struct SeenKeys {
    int first, end, begin = 0;
    __device__ SeenKeys(const BackwardArguments& a, const Work& work, const Block& block)
        : first(block.first_query + work.diagonal(a) + 1 - work.first_key),
          end(min(work.key_end(a) - work.first_key, kBlockKv)) {
      if constexpr (Work::kKnowsWindows) {
        begin = block.first_query + work.first_from(a) - work.first_key;
      }
    }
    __device__ int first_of(int row) const { return Work::kKnowsWindows ? max(0, begin + row) : 0; }
    __device__ int end_of(int row) const { return min(first + row, end); }
  };

  // Computes an element of dQ key by key, from dS and K in shared memory, for queries that do not
  // all see the same keys, where K is not all finite. A product over all keys would let masked keys
  // through, because 0 * NaN is NaN.
  static __device__ __forceinline__ float sum_seen_keys(const Shared& shared, const char* ds,
                                                        const SeenKeys& seen, int row, int column) {
    float sum = 0;
#pragma unroll 1
    for (int key = seen.first_of(row); key < seen.end_of(row); ++key) {
      sum += (kHalfColumns ? element(ds, kQPanelBytes, key, row)
                           : element(ds, kQPanelBytes, row, key)) *
             element(shared.k, kKvPanelBytes, key, stored_column(column));
    }
    return sum;
  }

  // Adds this part of dQ, computed by sum_seen_keys, to the accumulators in global memory.
  static __device__ __forceinline__ void add_seen_keys(const BackwardArguments& a,
                                                       const Shared& shared, const Work& work,
                                                       const Part& part, const Block& block,
                                                       const char* ds) {
    const SeenKeys seen(a, work, block);
    float* tiles = a.dq_sums + block.first_row * kHeadDim;
    // Without flags, each warp does so for its own rows.
    constexpr bool kAlone = kDqWarpgroup && !kFlags;
    constexpr int kWarpElements = kWarpRows * kDqColumns;
    const int first =
        kAlone ? part.warp * kWarpElements + part.lane : static_cast<int>(threadIdx.x) % 128;
    const int end = kAlone ? (part.warp + 1) * kWarpElements : kDqRows * kDqColumns;
#pragma unroll 1
    for (int i = first; i < end; i += kAlone ? 32 : 128) {
      const int row = part.first_dq_row + i / kDqColumns;
      const int column = part.first_dq_column + i % kDqColumns;
      if (!is_in_head(column)) continue;
      atomicAdd(backward::accumulator_of<kHeadDim>(tiles, row, column),
                sum_seen_keys(shared, ds, seen, row, column));
    }
  }

  // Stages pieces [kFirst, kEnd) of this consumer's part of dQ for the writers.
  template <int kFirst, int kEnd>
  static __device__ __forceinline__ void stage_dq(Shared& shared, const Part& part, int step,
                                                  const float (&dq)[kDqFloats]) {
    constexpr int kTiles = Writers::kPartTiles;
#pragma unroll
    for (int piece = kFirst; piece < kEnd; ++piece) {
      float* tiles = Writers::room_for(*shared.dq_writers, part.consumer, step, piece) +
                     part.warp * Writers::kPieceColumns / 8 * kTileFloats +
                     backward::accumulator_index(part.lane, 0);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        if (!is_in_head(part.first_dq_column + 8 * j)) break;
        const float* v = dq + 4 * (piece * kTiles + j);
        *reinterpret_cast<float4*>(tiles + j * kTileFloats) = {v[0], v[1], v[2], v[3]};
      }
    }
  }

  // Stages a piece of dQ computed by sum_seen_keys.
  static __device__ __forceinline__ void stage_seen_keys(const BackwardArguments& a, Shared& shared,
                                                         const Work& work, const Part& part,
                                                         const Block& block, int step, int piece,
                                                         const char* ds) {
    constexpr int kColumns = Writers::kPartColumns;
    const SeenKeys seen(a, work, block);
    const int first_column = part.first_dq_column + piece * kColumns;
    float* tiles = Writers::room_for(*shared.dq_writers, part.consumer, step, piece);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % 128; i < kBlockQ * kColumns; i += 128) {
      const int row = i / kColumns, column = i % kColumns;
      if (!is_in_head(first_column + column)) continue;
      *backward::accumulator_of<Writers::kPieceColumns>(tiles, row, column) =
          sum_seen_keys(shared, ds, seen, row, first_column + column);
    }
  }

  // Hands staged pieces to the writers, where no fence and barrier have followed the staging.
  template <int kFirst, int kEnd>
  static __device__ __forceinline__ void hand_over_dq(Shared& shared, const Part& part, int step) {
    ptx::fence_proxy_async();
    __syncwarp();
#pragma unroll
    for (int piece = kFirst; piece < kEnd; ++piece) {
      Writers::hand_over(*shared.dq_writers, part.lane, step, piece);
    }
  }

  // Named barriers: one for all consumers, and one for each consumer's turn (add its index).
  static constexpr int kBarrier = 1, kTurnBarrier = 2;

  // Adds this consumer's part of a block of dQ to the accumulators in global memory, or stages it
  // for the writers. `finite` is false only where a K that is not finite matters.
  static __device__ __forceinline__ void sum_dq(const BackwardArguments& a, Shared& shared,
                                                const Work& work, const Part& part,
                                                const Block& block, int step, bool finite,
                                                const char* ds, const float (&dq)[kDqFloats]) {
    if constexpr (kHasWriters) {
      if (finite) {
        stage_dq<0, 1>(shared, part, step, dq);
      } else {
        stage_seen_keys(a, shared, work, part, block, step, 0, ds);
      }
    } else {
      if (finite) {
        add_dq(dq_tiles(a, part, block), part, dq);
      } else {
        add_seen_keys(a, shared, work, part, block, ds);
      }
    }
  }

  static __device__ __forceinline__ void release(const Part& part, const uint64_t& empty) {
    if (part.lane == 0) arrive(empty);
  }

  // Loops over all blocks of queries: sums dK and dV of this consumer's keys, and computes its
  // columns of dQ.
  static __device__ __forceinline__ void sum_half_of_keys(const BackwardArguments& a,
                                                          Shared& shared, const Work& work,
                                                          const Part& part, float (&dk)[kKeyFloats],
                                                          float (&dv)[kKeyFloats]) {
    const Operands operands(shared, part);
    float s[kSFloats], dp[kSFloats], dq[kDqFloats];
    uint32_t p[kSteps][4], ds[kSteps][4];
    RingPosition<kStages> ring;
    Step step(work);
    wait(shared.k_full, 0);
    const Keys k_rows = left_operand(operands.k_rows, shared.k, part.warp_key);
    wait(shared.v_full, 0);
    const Keys v_rows = left_operand(operands.v_rows, shared.v, part.warp_key);
    for (int i = 0; i < work.steps; ++i, ring.advance(), step.advance(work)) {
      const int stage = ring.stage, buffer = i % 2;
      const Block block(a, work, step);

      wait(shared.q_full[stage], ring.parity);
      issue_transposed(s, k_rows, operands.q_rows.advance(stage * kQBytes));
      ptx::wgmma_commit_group();
      wait(shared.d_o_full[stage], ring.parity);
      issue_transposed(dp, v_rows, operands.d_o_rows.advance(stage * kQBytes));
      ptx::wgmma_commit_group();

      ptx::wgmma_wait_group<1>();  // S
      ptx::keep_here(s);
      bool finite = !block.masked || all_finite(s);
      exponentiate(s, shared.logsumexp[stage], part.first_query, a.scale_log2);
      if (block.masked) Visible(a, work, part, block).select(s);
      round(s, p);
      issue_sum(dv, p, operands.d_o_columns.advance(stage * kQBytes));
      ptx::wgmma_commit_group();

      ptx::wgmma_wait_group<1>();  // dP
      ptx::keep_here(dp);
      multiply_by(s, dp, shared.d[stage], part.first_query);
      if (block.masked) Visible(a, work, part, block).select(dp);
      round(dp, ds);
      store_operand(ds, shared.ds[buffer], part);
      ptx::fence_proxy_async();
      Delay::before_barrier();
      finite = ptx::barrier_and(kBarrier, kConsumerThreads, finite);
      if (kHasWriters && i > 0) {  // after the fence of dS
        Writers::hand_over(*shared.dq_writers, part.lane, i - 1, 0);
      }

      issue_dq(dq, operands.ds.advance(buffer * kDsBytes), operands.k_columns);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();  // dV, whose operand P takes registers
      release(part, shared.d_o_empty[stage]);
      issue_sum(dk, ds, operands.q_columns.advance(stage * kQBytes));
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();  // dQ
      ptx::keep_here(dq);
      sum_dq(a, shared, work, part, block, i, finite, shared.ds[buffer], dq);
      ptx::wgmma_wait_group<0>();
      release(part, shared.q_empty[stage]);
    }
    if constexpr (kHasWriters) hand_over_dq<0, 1>(shared, part, work.steps - 1);
  }

  // The consumers take turns to issue products: one computes exponentials while the tensor cores
  // work for the other.
  static __device__ __forceinline__ void await_turn(const Part& part) {
    Delay::before_barrier();
    ptx::barrier_sync(kTurnBarrier + part.consumer, kConsumerThreads);
  }
  static __device__ __forceinline__ void pass_turn(const Part& part) {
    Delay::before_barrier();
    ptx::barrier_arrive(kTurnBarrier + 1 - part.consumer, kConsumerThreads);
  }

  // Loops over all blocks of queries: sums dK and dV of this consumer's keys, and hands dS to the
  // warpgroup that computes dQ.
  static __device__ __forceinline__ void sum_half_of_keys_in_turns(const BackwardArguments& a,
                                                                   Shared& shared, const Work& work,
                                                                   const Part& part,
                                                                   float (&dk)[kKeyFloats],
                                                                   float (&dv)[kKeyFloats]) {
    const Operands operands(shared, part);
    float s[kSFloats], dp[kSFloats];
    uint32_t p[kSteps][4], ds[kSteps][4];
    RingPosition<kStages> ring;
    Step step(work);
    wait(shared.k_full, 0);
    wait(shared.v_full, 0);
    if (part.consumer == 1) await_turn(part);
    for (int i = 0; i < work.steps; ++i, ring.advance(), step.advance(work)) {
      const int stage = ring.stage, buffer = i % 2;
      const Block block(a, work, step);
      const auto add_block = [&]<bool kMasked>() {
        wait(shared.q_full[stage], ring.parity);
        issue_transposed(s, operands.k_rows, operands.q_rows.advance(stage * kQBytes));
        ptx::wgmma_commit_group();
        wait(shared.d_o_full[stage], ring.parity);
        issue_transposed(dp, operands.v_rows, operands.d_o_rows.advance(stage * kQBytes));
        ptx::wgmma_commit_group();

        ptx::wgmma_wait_group<1>();  // S
        pass_turn(part);
        ptx::keep_here(s);
        bool finite = !(kMasked && kFlags) || all_finite(s);
        exponentiate(s, shared.logsumexp[stage], part.first_query, a.scale_log2);
        if constexpr (kMasked && kByRequest) ptx::keep_here(s);  // before the mask is read
        if constexpr (kMasked) Visible(a, work, part, block).select(s);
        ptx::wgmma_wait_group<0>();  // dP
        ptx::keep_here(dp);
        multiply_by(s, dp, shared.d[stage], part.first_query);
        if constexpr (kMasked) Visible(a, work, part, block).select(dp);
        round(dp, ds);
        wait(shared.ds_empty[buffer], (i / 2 & 1) ^ 1);
        store_operand(ds, shared.ds[buffer], part);
        round(s, p);
        ptx::fence_proxy_async();
        if constexpr (kMasked && kFlags) {
          finite = __all_sync(~0u, finite);
          if (part.lane == 0) shared.finite[buffer][4 * part.consumer + part.warp] = finite;
        }
        __syncwarp();
        release(part, shared.ds_full[buffer]);

        await_turn(part);
        issue_sum(dv, p, operands.d_o_columns.advance(stage * kQBytes));
        ptx::wgmma_commit_group();
        issue_sum(dk, ds, operands.q_columns.advance(stage * kQBytes));
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
      };
      if (block.masked) {
        add_block.template operator()<true>();
      } else {
        add_block.template operator()<false>();
      }
    }
    if (part.consumer == 0) pass_turn(part);
  }

  // Loops over all blocks of queries: sums this consumer's columns of dK and dV, and computes its
  // columns of dQ.
  static __device__ __forceinline__ void sum_half_of_columns(const BackwardArguments& a,
                                                             Shared& shared, const Work& work,
                                                             const Part& part,
                                                             float (&dk)[kKeyFloats],
                                                             float (&dv)[kKeyFloats]) {
    const Operands operands(shared, part);
    auto& staged = shared.dq[4 * part.consumer + part.warp];
    float s[kSFloats], dp[kSFloats], dq[kDqFloats];
    uint32_t p[kSteps][4], ds[kSteps][4];
    float* unsent = nullptr;  // accumulators of the previous block's second half of dQ, if unsent
    bool kept = false;        // whether that half has yet to be staged for the writers
    RingPosition<kStages> q_ring;
    RingPosition<kDOStages> d_o_ring;
    Step step(work);
    wait(shared.k_full, 0);
    wait(shared.v_full, 0);
    for (int i = 0; i < work.steps; ++i) {
      const int q = q_ring.stage, d_o = d_o_ring.stage, buffer = i % 2;
      const Block block(a, work, step);
      const Visible visible(a, work, part, block);

      wait(shared.q_full[q], q_ring.parity);
      issue_transposed(s, operands.k_rows, operands.q_rows.advance(q * kQBytes));
      ptx::wgmma_commit_group();
      wait(shared.d_o_full[d_o], d_o_ring.parity);
      issue_transposed(dp, operands.v_rows, operands.d_o_rows.advance(d_o * kQBytes));
      ptx::wgmma_commit_group();

      ptx::wgmma_wait_group<1>();  // S
      ptx::keep_here(s);
      bool finite = !block.masked || all_finite(s);
      exponentiate(s, shared.logsumexp[q], part.first_query, a.scale_log2);
      if (block.masked) visible.select(s);
      round(s, p);
      if constexpr (kSendsDq) {
        if (unsent != nullptr) send_dq<1>(staged, unsent, part.lane, dq);
      } else if (kept) {
        stage_dq<1, 2>(shared, part, i - 1, dq);
      }
      store_operand(p, shared.p[buffer], part);
      ptx::fence_proxy_async();

      ptx::wgmma_wait_group<0>();  // dP
      ptx::keep_here(dp);
      multiply_by(s, dp, shared.d[d_o], part.first_query);
      if (block.masked) visible.select(dp);
      round(dp, ds);
      store_operand(ds, shared.ds[buffer], part);
      ptx::fence_proxy_async();
      Delay::before_barrier();
      finite = ptx::barrier_and(kBarrier, kConsumerThreads, finite);
      if (kHasWriters && kept) {  // after the fence of P
        Writers::hand_over(*shared.dq_writers, part.lane, i - 1, 1);
      }

      issue_sum(dv, operands.p.advance(buffer * kDsBytes),
                operands.d_o_columns.advance(d_o * kQBytes));
      ptx::wgmma_commit_group();
      issue_dq(dq, operands.ds.advance(buffer * kDsBytes), operands.k_columns);
      ptx::wgmma_commit_group();
      issue_sum(dk, operands.ds.advance(buffer * kDsBytes),
                operands.q_columns.advance(q * kQBytes));
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<2>();  // dV
      release(part, shared.d_o_empty[d_o]);
      ptx::wgmma_wait_group<1>();  // dQ
      ptx::keep_here(dq);
      if constexpr (kSendsDq) {
        unsent = finite ? dq_tiles(a, part, block) : nullptr;
        if (finite) {
          send_dq<0>(staged, unsent, part.lane, dq);
        } else {
          add_seen_keys(a, shared, work, part, block, shared.ds[buffer]);
        }
      } else {
        kept = finite;
        if (finite) {
          stage_dq<0, 1>(shared, part, i, dq);
          hand_over_dq<0, 1>(shared, part, i);
        } else {
#pragma unroll 1
          for (int piece = 0; piece < kDqPieces; ++piece) {
            stage_seen_keys(a, shared, work, part, block, i, piece, shared.ds[buffer]);
            ptx::fence_proxy_async();
            __syncwarp();
            Writers::hand_over(*shared.dq_writers, part.lane, i, piece);
          }
        }
      }
      ptx::wgmma_wait_group<0>();
      release(part, shared.q_empty[q]);
      q_ring.advance();
      d_o_ring.advance();
      step.advance(work);
    }
    if constexpr (kSendsDq) {
      if (unsent != nullptr) send_dq<1>(staged, unsent, part.lane, dq);
    } else if (kept) {
      stage_dq<1, 2>(shared, part, work.steps - 1, dq);
      hand_over_dq<1, 2>(shared, part, work.steps - 1);
    }
  }

  // Stores this warp's rows of dK or dV, times `scale`. They go through the shared memory of the
  // same rows of K or V (`keys`), from where TMA copies them.
  template <typename Rows>
  static __device__ __forceinline__ void store(const CUtensorMap& tensor, const Rows& rows,
                                               char* keys, const Work& work, const Part& part,
                                               const float (&sum)[kKeyFloats], float scale) {
    const uint32_t staged = ptx::shared_address(keys) +
                            stored_column(part.first_key_column) / 64 * kKvPanelBytes +
                            part.warp_key * kRowBytes;
    send_rows<T>(sum, {scale, scale}, staged, kKvPanelBytes, tensor, rows,
                 work.first_key + part.warp_key);
  }

  // Puts this warp's rows of dK or dV into the accumulators of a shared block of keys: stores them
  // in this part's slice if deterministic, else adds them.
  static __device__ __forceinline__ void add_to_others(float* sums, const BackwardArguments& a,
                                                       const Work& work, const Part& part,
                                                       const float (&sum)[kKeyFloats]) {
    const int64_t row = backward::row_of_sums(a, work, kConfig.deterministic) + part.warp_key;
    float* tiles = sums + row * kHeadDim + part.first_key_column / 8 * kTileFloats;
#pragma unroll
    for (int j = 0; j < kKeyColumns / 8; ++j) {
      const float v[4] = {sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]};
      if constexpr (kConfig.deterministic) {
        backward::store_accumulator(tiles + j * kTileFloats, part.lane, v);
      } else {
        backward::add_to_accumulator(tiles + j * kTileFloats, part.lane, v);
      }
    }
  }

  static __device__ void consume(const BackwardArguments& a, Shared& shared, const Work& work,
                                 int consumer) {
    const Part part(consumer);
    float dk[kKeyFloats], dv[kKeyFloats];
#pragma unroll
    for (int i = 0; i < kKeyFloats; ++i) dk[i] = dv[i] = 0;
    if (work.steps > 0) {
      if constexpr (kDqWarpgroup) {
        sum_half_of_keys_in_turns(a, shared, work, part, dk, dv);
      } else if constexpr (kHalfColumns) {
        sum_half_of_columns(a, shared, work, part, dk, dv);
      } else {
        sum_half_of_keys(a, shared, work, part, dk, dv);
      }
    }
    ptx::keep_here(dk);
    ptx::keep_here(dv);
    if (a.parts > 1) {
      add_to_others(a.dv_sums, a, work, part, dv);
      add_to_others(a.dk_sums, a, work, part, dk);
      if constexpr (kSendsDq) {
        if (part.lane == 0) ptx::cp_async_bulk_wait_group_read_0();
      }
      return;
    }
    ptx::barrier_sync(kBarrier, kConsumerThreads);  // the other may still read K and V
    store(a.dv[kHalfColumns ? part.consumer : 0], Rows{a}.key_gradients(work, a.dv_steps), shared.v,
          work, part, dv, 1);
    if constexpr (kDqWarpgroup) {
      const int last = work.steps - 1;  // its dQ reads K, too
      if (last >= 0) wait(shared.ds_empty[last % 2], last / 2 & 1);
    }
    store(a.dk[kHalfColumns ? part.consumer : 0], Rows{a}.key_gradients(work, a.dk_steps), shared.k,
          work, part, dk, a.scale);
    if (part.lane == 0) ptx::cp_async_bulk_wait_group_read_0();
  }

  // ---- The producer's warpgroup, where it computes dQ

  // Thread 0 also loads the blocks of queries. It refills the stage of the previous block once dS
  // shows that both consumers are done with that block.
  static __device__ void load_and_sum_dq(const BackwardArguments& a, Shared& shared,
                                         const Work& work) {
    if (work.steps == 0) return;
    const bool leads = threadIdx.x == 0;
    Loads loads(a, shared, work);
    if (leads) {
      loads.first();
      for (int i = 1; i < min(kStages, work.steps); ++i) loads.next();
    }
    __syncwarp();
    Part part(0);
    const ptx::WgmmaMatrix ds = Operands::of(shared, offsetof(Shared, ds), kQPanelBytes);
    const ptx::WgmmaMatrix k = Operands::of(shared, offsetof(Shared, k), kKvPanelBytes);
    Step step(work);
    wait(shared.k_full, 0);
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      const int buffer = i % 2;
      const Block block(a, work, step);
      wait(shared.ds_full[buffer], i / 2 & 1);
      bool finite = true;
      if (kFlags && block.masked) {
#pragma unroll
        for (int warp = 0; warp < 4 * kConsumers; ++warp) finite &= shared.finite[buffer][warp];
      }
      constexpr int kAcross = kHeadDim / kDqColumns, kParts = kBlockQ / kDqRows * kAcross;
#pragma unroll
      for (int n = 0; n < kParts; ++n) {
        part.first_dq_row = n / kAcross * kDqRows;
        part.first_dq_column = n % kAcross * kDqColumns;
        float dq[kDqFloats];
        issue_dq(dq, ds.advance(buffer * kDsBytes + part.first_dq_row * kRowBytes),
                 k.advance(part.first_dq_column * static_cast<int>(sizeof(T))));
        ptx::wgmma_commit_group();
        if (n == 0 && leads && i > 0 && i - 1 + kStages < work.steps) loads.next();
        __syncwarp();
        ptx::wgmma_wait_group<0>();
        ptx::keep_here(dq);
        const bool last = n == kParts - 1;
        if (!kFlags && block.masked) finite = __all_sync(~0u, all_finite(dq));
        if (last && finite) release(part, shared.ds_empty[buffer]);
        if (finite) {
          add_dq(dq_tiles(a, part, block), part, dq);
        } else {
          add_seen_keys(a, shared, work, part, block, shared.ds[buffer]);
        }
        if (last && !finite) {
          __syncwarp();
          release(part, shared.ds_empty[buffer]);
        }
      }
    }
  }

  static __device__ void run(const BackwardArguments& a) {
    extern __shared__ __align__(1024) char shared_memory[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
    if (threadIdx.x == 0) {
      ptx::prefetch_tensormap(a.q);
      ptx::prefetch_tensormap(a.d_o);
      ptx::prefetch_tensormap(a.k);
      ptx::prefetch_tensormap(a.v);
      ptx::prefetch_tensormap(a.logsumexp);
      ptx::prefetch_tensormap(a.d);
      initialise_barriers(shared);
      // Tickets follow the order in which thread blocks start, so that none waits for one that has
      // yet to start.
      if constexpr (kConfig.deterministic) shared.ticket = atomicAdd(a.tickets, 1);
    }
    const auto index = [&] {
      return kConfig.deterministic ? shared.ticket : static_cast<int>(blockIdx.x);
    };
    if constexpr (kByRequest) {
      // One warp looks for the request. What it finds stays in shared memory, as registers are few.
      Work& work = *reinterpret_cast<Work*>(shared.work);
      if (threadIdx.x < 32) {
        __syncwarp();
        const Work found(a, index());
        if (threadIdx.x == 0) work = found;
      }
      __syncthreads();
      if (work.exists) run_roles(a, shared, work);
    } else {
      __syncthreads();
      run_roles(a, shared, Work(a, index()));
    }
  }

  static __device__ __forceinline__ void run_roles(const BackwardArguments& a, Shared& shared,
                                                   const Work& work) {
    // The shuffle tells the compiler that the warpgroup index is the same in all lanes.
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
      ptx::setmaxnreg_dec<kProducerRegisters>();
      if constexpr (kDqWarpgroup) {
        load_and_sum_dq(a, shared, work);
      } else {
        if (threadIdx.x == 0) produce(a, shared, work);
      }
      if constexpr (kHasWriters) {
        if (threadIdx.x > 0 && threadIdx.x % 32 == 0) Writers::write(a, *shared.dq_writers, work);
      }
    } else {
      ptx::setmaxnreg_inc<kConsumerRegisters>();
      consume(a, shared, work, warpgroup - 1);
    }
  }
};

}  // namespace flashbench::kernels::sm90
