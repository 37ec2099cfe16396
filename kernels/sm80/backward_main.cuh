// The main kernel of the backward pass. A thread block owns a block of rows of K and V and loops
// over the blocks of Q and dO that see them:
//   S = Q K^T,  P = 2^(c S - L),  dP = dO V^T,  dS = P o (dP - D)
//   dV += P^T dO,  dK += dS^T Q,  dQ += dS K.
// dK and dV stay in registers; the thread blocks add dQ to fp32 accumulators in global memory.
//
// Half of the warps own dV, the other half dK. A warp then holds 64 x 64 of one of them, and reads
// half as much of P, dS, Q and dO from shared memory as if it held parts of both.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <type_traits>

#include "kernels/backward/accumulator.cuh"
#include "kernels/backward/backward.h"
#include "kernels/backward/list_work.cuh"
#include "kernels/backward/turns.cuh"
#include "kernels/backward/work.cuh"
#include "kernels/common/variant.h"
#include "kernels/mma/shared_tile.h"
#include "kernels/mma/tile_product.cuh"
#include "kernels/ptx/cp_async.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/shared_address.h"

namespace flashbench::kernels::sm80 {

using ptx::shared_address;

// The tiling of the main kernel. The warps form a different grid in each of the three products:
//   S and dP [q, kv]:  kScoreWarpsQ x the rest
//   dV or dK [kv, d]:  half of the warps each; 64 keys and an equal share of the columns per warp
//   dQ [q, d]:         kDqWarpsQ x the rest
template <int kHeadDim_, int kQ_, int kKv_, int kWarps_, int kStages_, int kScoreWarpsQ_,
          int kDqWarpsQ_, int kBlocksPerSm_>
struct Blocks {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kQ = kQ_;
  static constexpr int kKv = kKv_;
  static constexpr int kWarps = kWarps_;
  static constexpr int kStages = kStages_;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kThreads = 32 * kWarps;

  static constexpr int kScoreWarpsQ = kScoreWarpsQ_;
  static constexpr int kScoreWarpsKv = kWarps / kScoreWarpsQ;
  static constexpr int kScoreQ = kQ / kScoreWarpsQ;     // rows of S per warp
  static constexpr int kScoreKv = kKv / kScoreWarpsKv;  // columns of S per warp

  static constexpr int kKeyWarpsKv = kKv / 64;
  static constexpr int kKeyWarpsD = kWarps / 2 / kKeyWarpsKv;
  static constexpr int kKeyD = kHeadDim / kKeyWarpsD;

  static constexpr int kDqWarpsQ = kDqWarpsQ_;
  static constexpr int kDqWarpsD = kWarps / kDqWarpsQ;
  static constexpr int kDqQ = kQ / kDqWarpsQ;
  static constexpr int kDqD = kHeadDim / kDqWarpsD;

  // Three stages need one barrier per step and two buffers for P and dS.
  static constexpr int kScoreBuffers = kStages == 3 ? 2 : 1;
  static_assert(kStages == 2 || kStages == 3);
  static_assert(kScoreQ % 16 == 0 && kScoreKv % 16 == 0 && kKeyD % 16 == 0);
  static_assert(kDqQ % 16 == 0 && kDqD % 16 == 0);
};

// `kWorkBytes`: room for what a list says of the work.
template <typename Element, typename B, size_t kWorkBytes>
struct alignas(128) Shared {
  struct Stage {
    Element q[mma::SharedTile<B::kQ, B::kHeadDim>::kElements];
    Element d_o[mma::SharedTile<B::kQ, B::kHeadDim>::kElements];
    float logsumexp[B::kQ];  // base 2
    float d[B::kQ];
  };
  struct Scores {
    Element p[mma::SharedTile<B::kQ, B::kKv>::kElements];
    Element ds[mma::SharedTile<B::kQ, B::kKv>::kElements];
  };
  Element k[mma::SharedTile<B::kKv, B::kHeadDim>::kElements];
  Element v[mma::SharedTile<B::kKv, B::kHeadDim>::kElements];
  Stage stages[B::kStages];
  Scores scores[B::kScoreBuffers];
  alignas(16) unsigned char work[kWorkBytes];
};

// By request the work is found in a list. Its description stays in shared memory, as registers are
// few.
template <typename Work>
__device__ __forceinline__ decltype(auto) find_work(const backward::Arguments& args, int item,
                                                    void* in_shared_memory) {
  if constexpr (Work::kIsListed) {
    if (threadIdx.x == 0) Work::find(args, item).describe(args, in_shared_memory);
    __syncthreads();
    return *static_cast<const Work*>(in_shared_memory);
  } else {
    return Work(args, item);
  }
}

// Where the rows of the work lie in the tensors, and which of them see each other.
template <typename Work>
struct WorkRows {
  static constexpr bool kByRequest = Work::kKnowsWindows;
  const backward::Arguments& args;
  const Work& work;

  __device__ int batch() const {
    if constexpr (kByRequest) return work.of_batch;
    return work.batch;
  }
  __device__ int64_t query(int row) const {
    if constexpr (kByRequest) return int64_t{work.first_q} + row;
    return row;
  }
  __device__ int64_t key(int row) const {
    if constexpr (kByRequest) return int64_t{work.first_k} + row;
    return row;
  }
  __device__ int kv_len() const {
    if constexpr (kByRequest) return work.kv_len;
    return args.kv_len;
  }
  // A query sees keys from here on, or all from 0 on where this is negative.
  __device__ int first_seen(int query) const {
    if constexpr (kByRequest) return query + work.first_from(args);
    return 0;
  }
  // Only queries in [first_query, end_query) see any of the block's `keys` keys.
  __device__ int first_query() const { return max(0, work.first_key - work.diagonal(args)); }
  __device__ int end_query(int keys) const {
    const int q_len = work.q_len(args);
    if constexpr (!kByRequest) return q_len;
    return min(q_len, min(work.first_key + keys, work.key_end(args)) - first_seen(0));
  }
};

// Loads rows [0, kRows) of `from` into a tile, or a part of them: of the copies that this thread
// makes, every kParts-th, starting with copy `part`. Rows outside [begin, end) and columns from
// head_dim on are not read but filled with zeros.
template <int kRows, int kColumns, int kThreads, int kParts = 1, typename Element>
__device__ __forceinline__ void load_tile(uint32_t tile, const Element* from, int64_t row_stride,
                                          int begin, int end, int head_dim, int part = 0) {
  using To = mma::SharedTile<kRows, kColumns>;
  // Threads side by side along a row: one per chunk of a whole row or, if the number of threads is
  // not a multiple of that, of a panel's row.
  constexpr int kWidth = kThreads % (kColumns / 8) == 0 ? kColumns / 8 : To::kRowChunks;
  constexpr int kGroups = kColumns / 8 / kWidth;
  constexpr int kStep = kThreads / kWidth;  // rows per pass
  static_assert(kRows % kStep == 0 && kStep % 8 == 0);
  const int first_row = threadIdx.x / kWidth, first_chunk = threadIdx.x % kWidth;
  from += first_row * row_stride + first_chunk * 8;
#pragma unroll
  for (int i = 0; i < kRows / kStep * kGroups; ++i) {
    if (i % kParts != part) continue;
    const int row = i / kGroups * kStep, chunk = i % kGroups * kWidth;
    const unsigned readable = (first_chunk + chunk) * 8 < head_dim ? max(0, end - begin) : 0;
    const bool read = static_cast<unsigned>(first_row + row - begin) < readable;
    ptx::cp_async_16(To::move(tile + To::offset(first_row, first_chunk), row, chunk),
                     from + row * row_stride + chunk * 8, read ? 16 : 0);
  }
}

// dQ += dS K for a block of queries that do not all see the same keys, where K is not all finite: a
// product over all keys would let masked keys through, because 0 * NaN is NaN. `tiles` points to
// the accumulators of the block of queries. Of this block of keys its query 0 sees those before
// `visible`, and where `kHasFirst` from `first` on. Each further query sees those one further on,
// before `key_end`.
template <typename Element, typename B, bool kHasFirst>
__device__ void add_seen_keys(const Element* ds, const Element* k, int first, int visible,
                              int key_end, float* tiles) {
#pragma unroll 1
  for (int i = threadIdx.x; i < B::kQ * B::kHeadDim; i += B::kThreads) {
    const int row = i / B::kHeadDim, column = i % B::kHeadDim;
    float sum = 0;
#pragma unroll 1
    for (int key = kHasFirst ? max(0, first + row) : 0; key < min(visible + row, key_end); ++key) {
      sum += static_cast<float>(ds[mma::SharedTile<B::kQ, B::kKv>::element(row, key)]) *
             static_cast<float>(k[mma::SharedTile<B::kKv, B::kHeadDim>::element(key, column)]);
    }
    atomicAdd(backward::accumulator_of<B::kHeadDim>(tiles, row, column), sum);
  }
}

// The lane index, hidden from the compiler, which cannot see that it is the same in every step. It
// therefore recomputes addresses where they are needed, instead of keeping them in scarce registers
// throughout the loop.
__device__ __forceinline__ int fresh_lane() {
  int lane = threadIdx.x % 32;
  asm volatile("" : "+r"(lane));
  return lane & 31;
}

template <typename B, bool kByRequest>
using WorkOf = std::conditional_t<kByRequest, backward::RequestWork<B::kQ, B::kKv>,
                                  backward::Work<B::kQ, B::kKv>>;
template <typename Element, typename B, bool kByRequest>
using SharedOf = Shared<Element, B, kByRequest ? sizeof(WorkOf<B, kByRequest>) : 0>;

template <typename Element, typename B, bool kDeterministic, bool kByRequest>
__global__ void __launch_bounds__(B::kThreads, B::kBlocksPerSm)
    backward_main(const __grid_constant__ backward::Arguments args) {
  using QTile = mma::SharedTile<B::kQ, B::kHeadDim>;
  using KvTile = mma::SharedTile<B::kKv, B::kHeadDim>;
  using ScoreTile = mma::SharedTile<B::kQ, B::kKv>;
  using SharedMemory = SharedOf<Element, B, kByRequest>;
  using Work = WorkOf<B, kByRequest>;
  using Stage = typename SharedMemory::Stage;
  using Scores = typename SharedMemory::Scores;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(shared_bytes);

  // The shuffle tells the compiler that the warp index is the same in all lanes.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0) % B::kWarps;
  const int lane = threadIdx.x % 32;

  // Choose the keys and the head. In the deterministic kernel a thread block waits for thread
  // blocks with earlier keys, so that it must not start before them.
  int item = blockIdx.x;
  if constexpr (kDeterministic) {
    int& ticket = *reinterpret_cast<int*>(shared_bytes);
    if (threadIdx.x == 0) ticket = atomicAdd(args.tickets, 1);
    __syncthreads();
    item = ticket;
    __syncthreads();
  }
  if constexpr (kByRequest) {
    if (!Work::find(args, item).exists()) return;
  }
  const Work& work = find_work<Work>(args, item, shared.work);
  const WorkRows<Work> rows_of{args, work};
  const int kv_head = work.kv_head, batch = rows_of.batch(), first_key = work.first_key;
  const int first_query = rows_of.first_query();

  // Loads Q and dO of a block of queries, divided into kParts parts: one for each step of the
  // product during which they are loaded. `rows` is the number of rows of the block that exist; 0
  // if the block does not exist.
  const auto load_queries = [&]<int kParts>(std::integral_constant<int, kParts>, int head,
                                            int block, int rows, int stage, int part) {
    Stage& to = shared.stages[stage];
    const int row = block * B::kQ;
    const int64_t at = rows_of.query(row);
    const Element* q = args.q.head<Element>(batch, head) + at * args.q.row_stride;
    const Element* d_o = args.d_o.head<Element>(batch, head) + at * args.d_o.row_stride;
    load_tile<B::kQ, B::kHeadDim, B::kThreads, kParts>(
        shared_address(to.q), q, args.q.row_stride, first_query - row, rows, args.head_dim, part);
    load_tile<B::kQ, B::kHeadDim, B::kThreads, kParts>(shared_address(to.d_o), d_o,
                                                       args.d_o.row_stride, first_query - row, rows,
                                                       args.head_dim, part);
  };
  const auto load_statistics = [&](int head, int block, int stage) {
    Stage& to = shared.stages[stage];
    const int64_t first = row_of_query(args, work, head, block * B::kQ);
    if (threadIdx.x < B::kQ / 4) {
      const int i = threadIdx.x * 4;
      ptx::cp_async_16(shared_address(to.logsumexp + i), args.logsumexp_base_2 + first + i, 16);
      ptx::cp_async_16(shared_address(to.d + i), args.d + first + i, 16);
    }
  };

  // How many rows exist from a block of queries on.
  const auto rows_from = [&](int block) { return rows_of.end_query(B::kKv) - block * B::kQ; };

  backward::Step load(work);  // next block to load
  backward::Step next(work);  // next block to compute scores of

  {
    const int64_t row = rows_of.key(first_key);
    const int keys = work.key_end(args) - first_key;
    const Element* k = args.k.head<Element>(batch, kv_head) + row * args.k.row_stride;
    const Element* v = args.v.head<Element>(batch, kv_head) + row * args.v.row_stride;
    load_tile<B::kKv, B::kHeadDim, B::kThreads>(shared_address(shared.k), k, args.k.row_stride, 0,
                                                keys, args.head_dim);
    load_tile<B::kKv, B::kHeadDim, B::kThreads>(shared_address(shared.v), v, args.v.row_stride, 0,
                                                keys, args.head_dim);
    // Load the first block of queries or, with three stages, the first two; the second is a group
    // of its own.
    constexpr std::integral_constant<int, 1> kAtOnce;
    for (int i = 0; i < B::kStages - 1; ++i) {
      if (i < work.steps) {
        load_queries(kAtOnce, load.head, load.block, rows_from(load.block), i, 0);
        load_statistics(load.head, load.block, i);
        load.advance(work);
      }
      ptx::cp_async_commit_group();
    }
  }

  // This warp's accumulator of dV or dK: 64 keys x its columns.
  const bool owns_dv = warp < B::kWarps / 2;
  const int key_warp_kv = warp % (B::kWarps / 2) / B::kKeyWarpsD;
  const int key_warp_d = warp % B::kKeyWarpsD;
  float sum[4][B::kKeyD / 8][4] = {};

  // Computes P and dS of one block of queries into shared memory. Returns whether this thread has
  // found that dQ of this block needs add_seen_keys.
  const int score_warp_q = warp / B::kScoreWarpsKv, score_warp_kv = warp % B::kScoreWarpsKv;
  const auto compute_scores = [&](int first_row, int stage, int buffer, auto&& beside) {
    constexpr int kM = B::kScoreQ / 16, kN = B::kScoreKv / 8, kK = B::kHeadDim / 16;
    const int lane = fresh_lane();
    const Stage& from = shared.stages[stage];
    const int row_in_block = score_warp_q * B::kScoreQ + lane / 4;
    const uint32_t a_offset = QTile::offset(score_warp_q * B::kScoreQ + mma::row_major_row(lane),
                                            mma::row_major_chunk(lane));
    const uint32_t b_offset = KvTile::offset(
        score_warp_kv * B::kScoreKv + mma::column_major_row(lane), mma::column_major_chunk(lane));
    float s[kM][kN][4] = {};
    mma::multiply<Element, QTile, false, KvTile, false, 1, kK>(
        s, shared_address(from.q) + a_offset, shared_address(shared.k) + b_offset, beside);

    const int key_end = work.key_end(args), diagonal = work.diagonal(args);
    bool masked = min(key_end, first_row + diagonal + 1) < first_key + B::kKv;
    if constexpr (kByRequest) masked |= rows_of.first_seen(first_row + B::kQ - 1) > first_key;
    // A row of K that is not finite makes the scores of all queries not finite, even of those that
    // do not see it.
    bool finite = true;
    if (masked) {
#pragma unroll
      for (int i = 0; i < kM * kN * 4; ++i) {
        finite &= fabsf(s[i / 4 / kN][i / 4 % kN][i % 4]) < INFINITY;
      }
    }

    // dP starts at -D, so that the product leaves dP - D, the factor of dS.
    float logsumexp[kM][2];
    float dp[kM][kN][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        logsumexp[m][half] = from.logsumexp[row_in_block + m * 16 + half * 8];
        const float d = from.d[row_in_block + m * 16 + half * 8];
#pragma unroll
        for (int n = 0; n < kN; ++n) dp[m][n][2 * half] = dp[m][n][2 * half + 1] = -d;
      }
    }
    mma::multiply<Element, QTile, false, KvTile, false, 1, kK>(
        dp, shared_address(from.d_o) + a_offset, shared_address(shared.v) + b_offset, [&](int k) {
          constexpr int kValues = kM * kN * 4;
#pragma unroll
          for (int i = 0; i < kValues; ++i) {
            if (i < k * kValues / kK || i >= (k + 1) * kValues / kK) continue;
            float& x = s[i / 4 / kN][i / 4 % kN][i % 4];
            x = ptx::ex2_approx_ftz(fmaf(x, args.scale_log2, -logsumexp[i / 4 / kN][i % 4 / 2]));
          }
        });

    // Masked values are replaced by 0, not multiplied by 0, because they may be NaN.
    if (masked) {
      const int column = first_key + score_warp_kv * B::kScoreKv + lane % 4 * 2;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = first_row + row_in_block + m * 16 + i / 2 * 8;
            const int key = column + n * 8 + i % 2;
            bool seen = key < min(key_end, row + diagonal + 1);
            if constexpr (kByRequest) seen &= key >= rows_of.first_seen(row);
            s[m][n][i] = seen ? s[m][n][i] : 0.0f;
            dp[m][n][i] = seen ? dp[m][n][i] : 0.0f;
          }
        }
      }
    }

    Scores& to = shared.scores[buffer];
    const uint32_t offset =
        ScoreTile::offset(score_warp_q * B::kScoreQ + mma::stored_row(lane),
                          score_warp_kv * (B::kScoreKv / 8) + mma::stored_chunk(lane));
    const uint32_t p_address = shared_address(to.p) + offset;
    const uint32_t ds_address = shared_address(to.ds) + offset;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; n += 2) {
        uint32_t p[4], ds[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&x)[4] = s[m][n + i / 2];
          const float(&y)[4] = dp[m][n + i / 2];
          const int j = i % 2 * 2;
          p[i] = ptx::cvt_rn_x2<Element>(x[j], x[j + 1]);
          ds[i] = ptx::cvt_rn_x2<Element>(x[j] * y[j], x[j + 1] * y[j + 1]);
        }
        mma::store_matrices<ScoreTile>(p_address, m * 16, n, p);
        mma::store_matrices<ScoreTile>(ds_address, m * 16, n, ds);
      }
    }
    return !finite;
  };

  // dV += P^T dO or dK += dS^T Q, and dQ += dS K.
  const auto accumulate = [&](bool careful, int h, int q_block, int stage, int buffer,
                              auto&& beside) {
    const int lane = fresh_lane();
    const Stage& queries = shared.stages[stage];
    const Scores& scores = shared.scores[buffer];
    {
      const uint32_t a = shared_address(owns_dv ? scores.p : scores.ds) +
                         ScoreTile::offset(mma::column_major_row(lane),
                                           key_warp_kv * 8 + mma::column_major_chunk(lane));
      const uint32_t b =
          shared_address(owns_dv ? queries.d_o : queries.q) +
          QTile::offset(mma::row_major_row(lane), key_warp_d * 2 + mma::row_major_chunk(lane));
      mma::multiply<Element, ScoreTile, true, QTile, true, B::kKeyWarpsD, B::kQ / 16>(sum, a, b,
                                                                                      beside);
    }

    const int first_query = q_block * B::kQ;
    const int64_t row = row_of_query(args, work, h, first_query);
    float* tiles = args.dq_sums + row * B::kHeadDim;
    [[maybe_unused]] const auto sync = [] { __syncthreads(); };
    [[maybe_unused]] int* turn = args.turns + row / backward::kTurnRows;
    if (careful) {
      if constexpr (kDeterministic)
        backward::wait_for_turn(turn, work.turn(q_block), threadIdx.x == 0, sync);
      add_seen_keys<Element, B, kByRequest>(scores.ds, shared.k,
                                            rows_of.first_seen(first_query) - first_key,
                                            first_query + work.diagonal(args) + 1 - first_key,
                                            min(work.key_end(args) - first_key, B::kKv), tiles);
    } else {
      const int dq_warp_q = warp / B::kDqWarpsD, dq_warp_d = warp % B::kDqWarpsD;
      constexpr int kM = B::kDqQ / 16, kN = B::kDqD / 8;
      float dq[kM][kN][4] = {};
      const uint32_t a = shared_address(scores.ds) +
                         ScoreTile::offset(dq_warp_q * B::kDqQ + mma::row_major_row(lane),
                                           mma::row_major_chunk(lane));
      const uint32_t b =
          shared_address(shared.k) +
          KvTile::offset(mma::row_major_row(lane), dq_warp_d * 2 + mma::row_major_chunk(lane));
      mma::multiply<Element, ScoreTile, false, KvTile, true, B::kDqWarpsD, B::kKv / 16>(dq, a, b,
                                                                                        [](int) {});
      if constexpr (kDeterministic)
        backward::wait_for_turn(turn, work.turn(q_block), threadIdx.x == 0, sync);
      tiles += (dq_warp_q * (B::kDqQ / 16) * (B::kHeadDim / 8) + dq_warp_d * 2) * 128;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const int tile = m * (B::kHeadDim / 8) + n / 2 * 2 * B::kDqWarpsD + n % 2;
          backward::add_to_accumulator(tiles + tile * 128, lane, dq[m][n]);
        }
      }
    }
    if constexpr (kDeterministic)
      backward::pass_turn(turn, work.turn(q_block) + 1, threadIdx.x == 0, sync);
  };

  if constexpr (B::kStages == 3) {
    // Software pipeline: each iteration computes the gradients of one block of queries and the
    // scores of the next. After the barrier, P and dS are written, the loads have arrived, and the
    // oldest stage is free.
    backward::Step last = next;
    int last_stage = 2, stage = 0, next_stage = 1;
    bool careful = false;
    for (int step = 0;; ++step) {
      if (step == 0) {
        ptx::cp_async_wait_group<1>();
      } else {
        ptx::cp_async_wait_group<0>();
      }
      careful = __syncthreads_or(careful);
      if (step > 0) {
        const int rows = step + 1 < work.steps ? rows_from(load.block) : 0;
        accumulate(careful, last.head, last.block, last_stage, (step - 1) & 1, [&](int part) {
          load_queries(std::integral_constant<int, B::kQ / 16>{}, load.head, load.block, rows,
                       next_stage, part);
        });
        if (step + 1 < work.steps) load_statistics(load.head, load.block, next_stage);
        ptx::cp_async_commit_group();
        load.advance(work);
      }
      if (step == work.steps) break;
      careful = compute_scores(next.block * B::kQ, stage, step & 1, [](int) {});
      last = next;
      next.advance(work);
      const int oldest = last_stage;
      last_stage = stage, stage = next_stage, next_stage = oldest;
    }
    ptx::cp_async_wait_group<0>();
  } else {
    int stage = 0;
    for (int step = 0; step < work.steps; ++step) {
      ptx::cp_async_wait_group<0>();
      __syncthreads();
      const int rows = step + 1 < work.steps ? rows_from(load.block) : 0;
      if (step + 1 < work.steps) load_statistics(load.head, load.block, stage ^ 1);
      const bool careful = compute_scores(next.block * B::kQ, stage, 0, [&](int part) {
        load_queries(std::integral_constant<int, B::kHeadDim / 16>{}, load.head, load.block, rows,
                     stage ^ 1, part);
      });
      ptx::cp_async_commit_group();
      load.advance(work);
      accumulate(__syncthreads_or(careful), next.head, next.block, stage, 0, [](int) {});
      next.advance(work);
      stage ^= 1;
    }
    ptx::cp_async_wait_group<0>();
  }
  if (args.adds_keys) {
    float* tiles = (owns_dv ? args.dv_sums : args.dk_sums) +
                   (row_of_sums(args, work, kDeterministic) + key_warp_kv * 64) * B::kHeadDim +
                   key_warp_d * 2 * 128;
#pragma unroll
    for (int m = 0; m < 4; ++m) {
#pragma unroll
      for (int n = 0; n < B::kKeyD / 8; ++n) {
        const int tile = m * (B::kHeadDim / 8) + n / 2 * 2 * B::kKeyWarpsD + n % 2;
        if constexpr (kDeterministic) {
          backward::store_accumulator(tiles + tile * 128, lane, sum[m][n]);
        } else {
          backward::add_to_key_sums(tiles + tile * 128, lane, sum[m][n]);
        }
      }
    }
    return;
  }
  __syncthreads();

  // Move dK and dV to shared memory in place of K and V, so that they are stored in whole rows.
  const float factor = owns_dv ? 1.0f : args.scale;
  const uint32_t to = shared_address(owns_dv ? shared.v : shared.k) +
                      KvTile::offset(key_warp_kv * 64 + lane / 4, key_warp_d * 2) + lane % 4 * 4;
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int n = 0; n < B::kKeyD / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ptx::st_shared(KvTile::move(to, m * 16 + half * 8, n / 2 * 2 * B::kKeyWarpsD + n % 2),
                       ptx::cvt_rn_x2<Element>(sum[m][n][half * 2] * factor,
                                               sum[m][n][half * 2 + 1] * factor));
      }
    }
  }
  __syncthreads();
  const int64_t first = rows_of.key(first_key);
  Element* dk = args.dk.head<Element>(batch, kv_head) + first * args.dk.row_stride;
  Element* dv = args.dv.head<Element>(batch, kv_head) + first * args.dv.row_stride;
  constexpr int kChunks = B::kHeadDim / 8;
#pragma unroll 4
  for (int i = threadIdx.x; i < B::kKv * kChunks; i += B::kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    if (first_key + row >= rows_of.kv_len() || chunk * 8 >= args.head_dim) continue;
    const uint32_t offset = KvTile::offset(row, chunk);
    *reinterpret_cast<uint4*>(dk + row * args.dk.row_stride + chunk * 8) =
        ptx::ld_shared_v4(shared_address(shared.k) + offset);
    *reinterpret_cast<uint4*>(dv + row * args.dv.row_stride + chunk * 8) =
        ptx::ld_shared_v4(shared_address(shared.v) + offset);
  }
}

template <typename B, bool kDeterministic, bool kByRequest = false>
constexpr Variant<backward::Arguments> main_variant() {
  using Half = SharedOf<__half, B, kByRequest>;
  static_assert(sizeof(Half) == sizeof(SharedOf<__nv_bfloat16, B, kByRequest>));
  Variant<backward::Arguments> variant{
      B::kHeadDim,
      {.q = B::kQ, .kv = B::kKv, .warps = B::kWarps, .stages = B::kStages},
      B::kThreads,
      sizeof(Half),
      backward_main<__half, B, kDeterministic, kByRequest>,
      backward_main<__nv_bfloat16, B, kDeterministic, kByRequest>};
  if constexpr (kByRequest) {
    variant.lister = backward::backward_list_work<WorkOf<B, true>, backward::Arguments>;
  }
  return variant;
}

}  // namespace flashbench::kernels::sm80
