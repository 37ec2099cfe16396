// Attention backward on tensor cores of sm_80 and later: dQ, dK and dV from Q, K, V, O, dO and the
// logsumexp, in three launches. The schedule is FlashAttention-2's (Dao 2023, algorithm 2): a
// thread block owns a block of K and V rows, walks over the blocks of Q and dO that see them,
//   S = Q K^T,  P = 2^(c S - L),  dP = dO V^T,  dS = P o (dP - D),  D = rowsum(dO o O)
//   dV += P^T dO,  dK += dS^T Q,  dQ += dS K,
// and keeps dK and dV in registers; dQ is summed over thread blocks in global memory, in fp32.
//
// Half of the warps own dV, the other half dK: a warp then holds 64 x 64 of one of them, and reads
// half as much of P, dS, Q and dO from shared memory as if every warp held a part of both.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/ptx/cp_async.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/ldmatrix.h"
#include "kernels/ptx/mma.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/stmatrix.h"
#include "kernels/sm80/blocks.h"
#include "kernels/sm80/requirements.h"
#include "kernels/sm80/shared_tile.h"

namespace flashbench::kernels::sm80 {
namespace {

using ptx::shared_address;

template <typename Element>
__device__ __forceinline__ float2 unpack(uint32_t pair) {
  if constexpr (std::is_same_v<Element, __half>) {
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  } else {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
  }
}

// One store or load instruction each, at an address that Tile::move made.
__device__ __forceinline__ void store_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" : : "r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ uint4 load_shared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// A thread's four values of a 16 x 8 accumulator tile, added to that tile's 128 floats in global
// memory. Their order there is the one in which a warp's additions fill whole sectors.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ int accumulator_index(int lane, int i) {
  return lane * 4 + i;
}
__device__ __forceinline__ void add_to_accumulator(float* tile, int lane, const float (&v)[4]) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(
                   tile + accumulator_index(lane, 0)),
               "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}
__device__ __forceinline__ void load_accumulator(const float* tile, int lane, float (&v)[4]) {
  const float4 x = *reinterpret_cast<const float4*>(tile + accumulator_index(lane, 0));
  v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
}
#else
__device__ __forceinline__ int accumulator_index(int lane, int i) {
  return i * 32 + lane;
}
__device__ __forceinline__ void add_to_accumulator(float* tile, int lane, const float (&v)[4]) {
  for (int i = 0; i < 4; ++i) {
    asm volatile(
        "red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(tile + accumulator_index(lane, i)),
        "f"(v[i])
        : "memory");
  }
}
__device__ __forceinline__ void load_accumulator(const float* tile, int lane, float (&v)[4]) {
  for (int i = 0; i < 4; ++i) v[i] = tile[accumulator_index(lane, i)];
}
#endif

// ---- shapes ----

// How the main kernel is cut up. Warps form grids of their own in each of the three products:
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
  static constexpr int kScoreQ = kQ / kScoreWarpsQ;     // rows of S that a warp computes
  static constexpr int kScoreKv = kKv / kScoreWarpsKv;  // and columns

  static constexpr int kKeyWarpsKv = kKv / 64;
  static constexpr int kKeyWarpsD = kWarps / 2 / kKeyWarpsKv;
  static constexpr int kKeyD = kHeadDim / kKeyWarpsD;

  static constexpr int kDqWarpsQ = kDqWarpsQ_;
  static constexpr int kDqWarpsD = kWarps / kDqWarpsQ;
  static constexpr int kDqQ = kQ / kDqWarpsQ;
  static constexpr int kDqD = kHeadDim / kDqWarpsD;

  // With three stages one barrier a step is enough, and P and dS need two buffers.
  static constexpr int kScoreBuffers = kStages == 3 ? 2 : 1;
  static_assert(kStages == 2 || kStages == 3);
  static_assert(kScoreQ % 16 == 0 && kScoreKv % 16 == 0 && kKeyD % 16 == 0);
  static_assert(kDqQ % 16 == 0 && kDqD % 16 == 0);
};

// A tile in shared memory, addressed by rows and chunks of 8 columns.
template <int kRows, int kColumns>
struct Tile : SharedTile<kRows, kColumns> {
  using Base = SharedTile<kRows, kColumns>;
  using Base::kPanelBytes, Base::kRowBytes, Base::kRowChunks;
  static constexpr int kElements = kRows * kColumns;

  __device__ static uint32_t offset(int row, int chunk) {
    return chunk / kRowChunks * kPanelBytes + Base::chunk_offset(row, chunk % kRowChunks);
  }
  __device__ static uint32_t element(int row, int column) {
    return offset(row, column / 8) / 2 + column % 8;
  }
  // The address of some (row, chunk) -> that of (row + rows, chunk + chunks), if `rows` is a
  // multiple of 8 and `chunks` has no bit in common with the chunk's number in its panel.
  __device__ static uint32_t move(uint32_t address, int rows, int chunks) {
    return (address ^ (chunks % kRowChunks * 16)) + chunks / kRowChunks * kPanelBytes +
           rows * kRowBytes;
  }
};

template <typename Element, typename B>
struct alignas(128) Shared {
  struct Stage {
    Element q[Tile<B::kQ, B::kHeadDim>::kElements];
    Element d_o[Tile<B::kQ, B::kHeadDim>::kElements];
    float logsumexp[B::kQ];  // base 2
    float d[B::kQ];
  };
  struct Scores {
    Element p[Tile<B::kQ, B::kKv>::kElements];
    Element ds[Tile<B::kQ, B::kKv>::kElements];
  };
  Element k[Tile<B::kKv, B::kHeadDim>::kElements];
  Element v[Tile<B::kKv, B::kHeadDim>::kElements];
  Stage stages[B::kStages];
  Scores scores[B::kScoreBuffers];
};

struct Strided {
  void* data;
  int64_t batch_stride, head_stride, row_stride;

  template <typename Element>
  __device__ Element* head(int b, int h) const {
    return static_cast<Element*>(data) + b * batch_stride + h * head_stride;
  }
};

struct Arguments {
  Strided q, k, v, o, d_o, dq, dk, dv;
  const float* logsumexp;  // [batch, q_heads, q_len], base e

  // The workspace.
  float* dq_sums;           // [batch * q_heads, padded_q / 16, padded head_dim / 8, 128]
  float* logsumexp_base_2;  // [batch * q_heads, padded_q], +inf for rows that see no key
  float* d;                 // [batch * q_heads, padded_q]
  int* turns;               // [batch * q_heads, padded_q / kTurnRows]
  int* tickets;             // thread blocks started

  int batch, q_heads, kv_heads, group, q_len, kv_len, head_dim, padded_q;
  int section_heads;  // K/V heads whose thread blocks are mixed
  int key_end;        // keys from here on are seen by no query
  int diagonal;       // query q sees keys 0 to q + diagonal
  float scale, scale_log2;
};

constexpr int kRowPadding = 128;  // q_len is rounded up to a multiple of this in the workspace
constexpr int kTurnRows = 32;     // rows of the finest block of Q

// ---- pieces of the main kernel ----

// Rows [0, kRows) of `from` into a tile, or each kParts-th of the copies that this thread makes,
// from the one numbered `part` on. Rows outside [begin, end) and columns from head_dim on become
// zeros and are not read.
template <int kRows, int kColumns, int kThreads, int kParts = 1, typename Element>
__device__ __forceinline__ void load_tile(uint32_t tile, const Element* from, int64_t row_stride,
                                          int begin, int end, int head_dim, int part = 0) {
  using To = Tile<kRows, kColumns>;
  // Chunks side by side: a whole row, or a panel's where rows do not divide the threads.
  constexpr int kWidth = kThreads % (kColumns / 8) == 0 ? kColumns / 8 : To::kRowChunks;
  constexpr int kGroups = kColumns / 8 / kWidth;
  constexpr int kStep = kThreads / kWidth;  // rows at a time
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

// Which row and chunk of a 16 x 16 block a lane points ldmatrix at, so that the four registers are
// an A operand stored [m, k] or two B operands stored [k, n] ...
__device__ __forceinline__ int row_major_row(int lane) {
  return lane & 15;
}
__device__ __forceinline__ int row_major_chunk(int lane) {
  return lane >> 4;
}
// ... or an A operand stored [k, m] or two B operands stored [n, k].
__device__ __forceinline__ int column_major_row(int lane) {
  return (lane & 7) + (lane >> 4) * 8;
}
__device__ __forceinline__ int column_major_chunk(int lane) {
  return (lane >> 3) & 1;
}

// A 16 x 16 block, as two accumulator tiles side by side leave it in registers, into a tile:
// `address` is a lane's, of stored_row and stored_chunk in the block from which `rows` and `chunks`
// count.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ int stored_row(int lane) {
  return row_major_row(lane);
}
__device__ __forceinline__ int stored_chunk(int lane) {
  return row_major_chunk(lane);
}
template <typename To>
__device__ __forceinline__ void store_matrices(uint32_t address, int rows, int chunks,
                                               const uint32_t (&x)[4]) {
  ptx::stmatrix_x4(To::move(address, rows, chunks), x);
}
#else
__device__ __forceinline__ int stored_row(int lane) {
  return lane / 4;
}
__device__ __forceinline__ int stored_chunk(int) {
  return 0;
}
template <typename To>
__device__ __forceinline__ void store_matrices(uint32_t address, int rows, int chunks,
                                               const uint32_t (&x)[4]) {
  const uint32_t in_chunk = threadIdx.x % 4 * 4;
  for (int i = 0; i < 4; ++i) {
    store_shared(To::move(address, rows + i % 2 * 8, chunks + i / 2) + in_chunk, x[i]);
  }
}
#endif

// C [16 kM, 8 kN] += A B over a depth of 16 kK. The lane's addresses in A and B are of their first
// 16 x 16 block; kStepN: distance of a warp's pairs of column tiles in B, in pairs. After each step
// of the depth comes a piece of other work, for the CUDA cores to do under the tensor cores.
template <typename Element, typename TileA, bool kTransA, typename TileB, bool kTransB, int kStepN,
          int kK, int kM, int kN, typename Between>
__device__ __forceinline__ void multiply(float (&c)[kM][kN][4], uint32_t a_address,
                                         uint32_t b_address, Between&& between) {
#pragma unroll
  for (int k = 0; k < kK; ++k) {
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      if constexpr (kTransA) {
        ptx::ldmatrix_x4_trans(a[m], TileA::move(a_address, k * 16, m * 2));
      } else {
        ptx::ldmatrix_x4(a[m], TileA::move(a_address, m * 16, k * 2));
      }
    }
#pragma unroll
    for (int n = 0; n < kN / 2; ++n) {
      uint32_t b[4];
      if constexpr (kTransB) {
        ptx::ldmatrix_x4_trans(b, TileB::move(b_address, k * 16, n * 2 * kStepN));
      } else {
        ptx::ldmatrix_x4(b, TileB::move(b_address, n * 16, k * 2));
      }
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        ptx::mma_m16n8k16<Element>(c[m][2 * n], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<Element>(c[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
    between(k);
  }
}

// dQ += dS K, for a block of queries that do not all see the same keys, where K is not all finite:
// a product over all keys would let what is masked through, as 0 * NaN is NaN. `tiles` is where the
// block's sums begin; query 0 of the block sees the first `visible` keys of this block, each
// further one a key more, up to `key_end` of them.
template <typename Element, typename B>
__device__ void add_seen_keys(const Element* ds, const Element* k, int visible, int key_end,
                              float* tiles) {
#pragma unroll 1
  for (int i = threadIdx.x; i < B::kQ * B::kHeadDim; i += B::kThreads) {
    const int row = i / B::kHeadDim, column = i % B::kHeadDim;
    float sum = 0;
#pragma unroll 1
    for (int key = 0; key < min(visible + row, key_end); ++key) {
      sum += static_cast<float>(ds[Tile<B::kQ, B::kKv>::element(row, key)]) *
             static_cast<float>(k[Tile<B::kKv, B::kHeadDim>::element(key, column)]);
    }
    float* tile = tiles + (row / 16 * (B::kHeadDim / 8) + column / 8) * 128;
    const int lane = row % 8 * 4 + column % 8 / 2, value = row % 16 / 8 * 2 + column % 2;
    atomicAdd(tile + accumulator_index(lane, value), sum);
  }
}

// Waits until the thread blocks of all earlier keys have added to this block of dQ.
__device__ __forceinline__ void wait_for_turn(const int* turn, int mine) {
  if (threadIdx.x == 0) {
    int now;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
    } while (now != mine);
  }
  __syncthreads();
}
__device__ __forceinline__ void pass_turn(int* turn, int next) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(next) : "memory");
  }
}

// The lane's number, from which the compiler cannot tell that it is the same in every step: the
// addresses that follow from it are then computed where they are needed, instead of taking
// registers, which are short, throughout the loop.
__device__ __forceinline__ int fresh_lane() {
  int lane = threadIdx.x % 32;
  asm volatile("" : "+r"(lane));
  return lane & 31;
}

template <typename Element, typename B, bool kDeterministic>
__global__ void __launch_bounds__(B::kThreads, B::kBlocksPerSm)
    backward_main(const __grid_constant__ Arguments args) {
  using QTile = Tile<B::kQ, B::kHeadDim>;
  using KvTile = Tile<B::kKv, B::kHeadDim>;
  using ScoreTile = Tile<B::kQ, B::kKv>;
  using SharedMemory = Shared<Element, B>;
  using Stage = typename SharedMemory::Stage;
  using Scores = typename SharedMemory::Scores;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(shared_bytes);

  // The shuffle tells the compiler that the warp's number is the same in all of its lanes.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0) % B::kWarps;
  const int lane = threadIdx.x % 32;

  // Which keys of which head. In deterministic order a thread block waits for those of earlier
  // keys, so that it must not start before them.
  int item = blockIdx.x;
  if constexpr (kDeterministic) {
    int& ticket = *reinterpret_cast<int*>(shared_bytes);
    if (threadIdx.x == 0) ticket = atomicAdd(args.tickets, 1);
    __syncthreads();
    item = ticket;
    __syncthreads();
  }
  const int key_blocks = (args.kv_len + B::kKv - 1) / B::kKv;
  const int section = item / (args.section_heads * key_blocks);
  const int section_head = section * args.section_heads;
  const int section_heads = min(args.section_heads, args.batch * args.kv_heads - section_head);
  const int item_in_section = item - section_head * key_blocks;
  const int key_block = item_in_section / section_heads;
  const int batch_head = section_head + item_in_section % section_heads;
  const int kv_head = batch_head % args.kv_heads, batch = batch_head / args.kv_heads;
  const int first_key = key_block * B::kKv;

  // Steps: the blocks of queries that see some of these keys, of all query heads of the group.
  const int first_query = max(0, first_key - args.diagonal);
  const int first_block = first_query / B::kQ;
  const int end_block = first_key < args.key_end ? (args.q_len + B::kQ - 1) / B::kQ : first_block;
  const int steps = max(0, end_block - first_block) * args.group;

  // Q and dO of a block of queries, in as many parts as there are steps in the product beside which
  // they are loaded; `rows` is how many of the block's rows there are, 0 if there is no such block.
  const auto load_queries = [&]<int kParts>(std::integral_constant<int, kParts>, int head,
                                            int block, int rows, int stage, int part) {
    Stage& to = shared.stages[stage];
    const int row = block * B::kQ;
    const Element* q = args.q.head<Element>(batch, head) + row * args.q.row_stride;
    const Element* d_o = args.d_o.head<Element>(batch, head) + row * args.d_o.row_stride;
    load_tile<B::kQ, B::kHeadDim, B::kThreads, kParts>(
        shared_address(to.q), q, args.q.row_stride, first_query - row, rows, args.head_dim, part);
    load_tile<B::kQ, B::kHeadDim, B::kThreads, kParts>(shared_address(to.d_o), d_o,
                                                       args.d_o.row_stride, first_query - row, rows,
                                                       args.head_dim, part);
  };
  const auto load_statistics = [&](int head, int block, int stage) {
    Stage& to = shared.stages[stage];
    const int64_t first =
        static_cast<int64_t>(batch * args.q_heads + head) * args.padded_q + block * B::kQ;
    if (threadIdx.x < B::kQ / 4) {
      const int i = threadIdx.x * 4;
      ptx::cp_async_16(shared_address(to.logsumexp + i), args.logsumexp_base_2 + first + i, 16);
      ptx::cp_async_16(shared_address(to.d + i), args.d + first + i, 16);
    }
  };

  const int first_head = kv_head * args.group;
  int load_head = first_head, load_block = first_block;  // of the next load
  int head = first_head, block = first_block;            // of the next scores
  const auto advance = [&](int& h, int& b) {
    if (++b == end_block) {
      b = first_block;
      ++h;
    }
  };

  {
    const int64_t row = first_key;
    const Element* k = args.k.head<Element>(batch, kv_head) + row * args.k.row_stride;
    const Element* v = args.v.head<Element>(batch, kv_head) + row * args.v.row_stride;
    load_tile<B::kKv, B::kHeadDim, B::kThreads>(shared_address(shared.k), k, args.k.row_stride, 0,
                                                args.key_end - first_key, args.head_dim);
    load_tile<B::kKv, B::kHeadDim, B::kThreads>(shared_address(shared.v), v, args.v.row_stride, 0,
                                                args.key_end - first_key, args.head_dim);
    // With three stages the first two blocks of queries, the second in a group of its own.
    constexpr std::integral_constant<int, 1> kAtOnce;
    for (int i = 0; i < B::kStages - 1; ++i) {
      if (i < steps) {
        load_queries(kAtOnce, load_head, load_block, args.q_len - load_block * B::kQ, i, 0);
        load_statistics(load_head, load_block, i);
        advance(load_head, load_block);
      }
      ptx::cp_async_commit_group();
    }
  }

  // dV or dK: [64 keys of this warp, its columns].
  const bool owns_dv = warp < B::kWarps / 2;
  const int key_warp_kv = warp % (B::kWarps / 2) / B::kKeyWarpsD;
  const int key_warp_d = warp % B::kKeyWarpsD;
  float sum[4][B::kKeyD / 8][4] = {};

  // P and dS of one block of queries into shared memory. Returns whether dQ of this block needs
  // add_seen_keys, as far as this thread can tell.
  const int score_warp_q = warp / B::kScoreWarpsKv, score_warp_kv = warp % B::kScoreWarpsKv;
  const auto compute_scores = [&](int first_row, int stage, int buffer, auto&& beside) {
    constexpr int kM = B::kScoreQ / 16, kN = B::kScoreKv / 8, kK = B::kHeadDim / 16;
    const int lane = fresh_lane();
    const Stage& from = shared.stages[stage];
    const int row_in_block = score_warp_q * B::kScoreQ + lane / 4;
    const uint32_t a_offset =
        QTile::offset(score_warp_q * B::kScoreQ + row_major_row(lane), row_major_chunk(lane));
    const uint32_t b_offset = KvTile::offset(score_warp_kv * B::kScoreKv + column_major_row(lane),
                                             column_major_chunk(lane));
    float s[kM][kN][4] = {};
    multiply<Element, QTile, false, KvTile, false, 1, kK>(
        s, shared_address(from.q) + a_offset, shared_address(shared.k) + b_offset, beside);

    const bool masked = min(args.key_end, first_row + args.diagonal + 1) < first_key + B::kKv;
    // A row of K that is not finite shows in the scores of all queries, whether they see it or not.
    bool finite = true;
    if (masked) {
#pragma unroll
      for (int i = 0; i < kM * kN * 4; ++i) {
        finite &= fabsf(s[i / 4 / kN][i / 4 % kN][i % 4]) < INFINITY;
      }
    }

    // dP starts at -D, so that it ends as the second factor of dS.
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
    multiply<Element, QTile, false, KvTile, false, 1, kK>(
        dp, shared_address(from.d_o) + a_offset, shared_address(shared.v) + b_offset, [&](int k) {
          constexpr int kValues = kM * kN * 4;
#pragma unroll
          for (int i = 0; i < kValues; ++i) {
            if (i < k * kValues / kK || i >= (k + 1) * kValues / kK) continue;
            float& x = s[i / 4 / kN][i / 4 % kN][i % 4];
            x = ptx::ex2_approx_ftz(fmaf(x, args.scale_log2, -logsumexp[i / 4 / kN][i % 4 / 2]));
          }
        });

    // Selected, not multiplied away: what a query does not see may be NaN.
    if (masked) {
      const int column = first_key + score_warp_kv * B::kScoreKv + lane % 4 * 2;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = first_row + row_in_block + m * 16 + i / 2 * 8;
            const bool seen = column + n * 8 + i % 2 < min(args.key_end, row + args.diagonal + 1);
            s[m][n][i] = seen ? s[m][n][i] : 0.0f;
            dp[m][n][i] = seen ? dp[m][n][i] : 0.0f;
          }
        }
      }
    }

    Scores& to = shared.scores[buffer];
    const uint32_t offset =
        ScoreTile::offset(score_warp_q * B::kScoreQ + stored_row(lane),
                          score_warp_kv * (B::kScoreKv / 8) + stored_chunk(lane));
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
        store_matrices<ScoreTile>(p_address, m * 16, n, p);
        store_matrices<ScoreTile>(ds_address, m * 16, n, ds);
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
      const uint32_t a =
          shared_address(owns_dv ? scores.p : scores.ds) +
          ScoreTile::offset(column_major_row(lane), key_warp_kv * 8 + column_major_chunk(lane));
      const uint32_t b = shared_address(owns_dv ? queries.d_o : queries.q) +
                         QTile::offset(row_major_row(lane), key_warp_d * 2 + row_major_chunk(lane));
      multiply<Element, ScoreTile, true, QTile, true, B::kKeyWarpsD, B::kQ / 16>(sum, a, b, beside);
    }

    const int q_head = batch * args.q_heads + h, first_row = q_block * B::kQ;
    float* tiles =
        args.dq_sums + (static_cast<int64_t>(q_head) * args.padded_q + first_row) * B::kHeadDim;
    [[maybe_unused]] int* turn =
        args.turns + static_cast<int64_t>(q_head) * (args.padded_q / kTurnRows) + q_block;
    if (careful) {
      if constexpr (kDeterministic) wait_for_turn(turn, key_block);
      add_seen_keys<Element, B>(scores.ds, shared.k, first_row + args.diagonal + 1 - first_key,
                                min(args.key_end - first_key, B::kKv), tiles);
    } else {
      const int dq_warp_q = warp / B::kDqWarpsD, dq_warp_d = warp % B::kDqWarpsD;
      constexpr int kM = B::kDqQ / 16, kN = B::kDqD / 8;
      float dq[kM][kN][4] = {};
      const uint32_t a =
          shared_address(scores.ds) +
          ScoreTile::offset(dq_warp_q * B::kDqQ + row_major_row(lane), row_major_chunk(lane));
      const uint32_t b = shared_address(shared.k) +
                         KvTile::offset(row_major_row(lane), dq_warp_d * 2 + row_major_chunk(lane));
      multiply<Element, ScoreTile, false, KvTile, true, B::kDqWarpsD, B::kKv / 16>(dq, a, b,
                                                                                   [](int) {});
      if constexpr (kDeterministic) wait_for_turn(turn, key_block);
      tiles += (dq_warp_q * (B::kDqQ / 16) * (B::kHeadDim / 8) + dq_warp_d * 2) * 128;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const int tile = m * (B::kHeadDim / 8) + n / 2 * 2 * B::kDqWarpsD + n % 2;
          add_to_accumulator(tiles + tile * 128, lane, dq[m][n]);
        }
      }
    }
    if constexpr (kDeterministic) pass_turn(turn, key_block + 1);
  };

  if constexpr (B::kStages == 3) {
    // A step behind each other: the gradients of one block of queries, the scores of the next. The
    // barrier stands for: P and dS are written, the loads have arrived, the oldest stage is free.
    int last_head = head, last_block = block;
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
        const int rows = step + 1 < steps ? args.q_len - load_block * B::kQ : 0;
        accumulate(careful, last_head, last_block, last_stage, (step - 1) & 1, [&](int part) {
          load_queries(std::integral_constant<int, B::kQ / 16>{}, load_head, load_block, rows,
                       next_stage, part);
        });
        if (step + 1 < steps) load_statistics(load_head, load_block, next_stage);
        ptx::cp_async_commit_group();
        advance(load_head, load_block);
      }
      if (step == steps) break;
      careful = compute_scores(block * B::kQ, stage, step & 1, [](int) {});
      last_head = head, last_block = block;
      advance(head, block);
      const int oldest = last_stage;
      last_stage = stage, stage = next_stage, next_stage = oldest;
    }
    ptx::cp_async_wait_group<0>();
  } else {
    int stage = 0;
    for (int step = 0; step < steps; ++step) {
      ptx::cp_async_wait_group<0>();
      __syncthreads();
      const int rows = step + 1 < steps ? args.q_len - load_block * B::kQ : 0;
      if (step + 1 < steps) load_statistics(load_head, load_block, stage ^ 1);
      const bool careful = compute_scores(block * B::kQ, stage, 0, [&](int part) {
        load_queries(std::integral_constant<int, B::kHeadDim / 16>{}, load_head, load_block, rows,
                     stage ^ 1, part);
      });
      ptx::cp_async_commit_group();
      advance(load_head, load_block);
      accumulate(__syncthreads_or(careful), head, block, stage, 0, [](int) {});
      advance(head, block);
      stage ^= 1;
    }
    ptx::cp_async_wait_group<0>();
  }
  __syncthreads();

  // dK and dV take the place of K and V in shared memory, to leave in whole rows.
  const float factor = owns_dv ? 1.0f : args.scale;
  const uint32_t to = shared_address(owns_dv ? shared.v : shared.k) +
                      KvTile::offset(key_warp_kv * 64 + lane / 4, key_warp_d * 2) + lane % 4 * 4;
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int n = 0; n < B::kKeyD / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        store_shared(KvTile::move(to, m * 16 + half * 8, n / 2 * 2 * B::kKeyWarpsD + n % 2),
                     ptx::cvt_rn_x2<Element>(sum[m][n][half * 2] * factor,
                                             sum[m][n][half * 2 + 1] * factor));
      }
    }
  }
  __syncthreads();
  Element* dk = args.dk.head<Element>(batch, kv_head) + first_key * args.dk.row_stride;
  Element* dv = args.dv.head<Element>(batch, kv_head) + first_key * args.dv.row_stride;
  constexpr int kChunks = B::kHeadDim / 8;
#pragma unroll 4
  for (int i = threadIdx.x; i < B::kKv * kChunks; i += B::kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    if (first_key + row >= args.kv_len || chunk * 8 >= args.head_dim) continue;
    const uint32_t offset = KvTile::offset(row, chunk);
    *reinterpret_cast<uint4*>(dk + row * args.dk.row_stride + chunk * 8) =
        load_shared(shared_address(shared.k) + offset);
    *reinterpret_cast<uint4*>(dv + row * args.dv.row_stride + chunk * 8) =
        load_shared(shared_address(shared.v) + offset);
  }
}

// ---- before and after ----

constexpr int kBeforeThreads = 256;
constexpr int kAfterThreads = 128;
constexpr int kAfterRows = 64;  // of a thread block

// Lanes that share a row, 8 elements each.
__host__ __device__ constexpr int lanes_per_row(int head_dim) {
  return head_dim <= 32 ? 4 : head_dim <= 64 ? 8 : head_dim <= 128 ? 16 : 32;
}

// Rows that a thread block handles, two for each thread.
__host__ __device__ constexpr int before_rows(int head_dim) {
  return 2 * kBeforeThreads / lanes_per_row(head_dim);
}

// D = rowsum(dO o O), the logsumexp in base 2, and zeros where dQ, turns and tickets are counted.
template <typename Element, int kHeadDim>
__global__ void __launch_bounds__(kBeforeThreads)
    backward_before(const __grid_constant__ Arguments args) {
  constexpr int kLanes = lanes_per_row(kHeadDim);
  constexpr int kRows = before_rows(kHeadDim), kPasses = kRows * kLanes / kBeforeThreads;
  const int spans = args.padded_q / kRows;
  const int head = blockIdx.x / spans;
  const int first = blockIdx.x % spans * kRows;
  const int b = head / args.q_heads, h = head % args.q_heads;
  const int64_t first_padded = static_cast<int64_t>(head) * args.padded_q + first;

  if (blockIdx.x == 0 && threadIdx.x == 0) *args.tickets = 0;
  if (threadIdx.x < kRows && (first + threadIdx.x) % kTurnRows == 0) {
    args.turns[(first_padded + threadIdx.x) / kTurnRows] = 0;
  }

  const Element* o = args.o.head<Element>(b, h);
  const Element* d_o = args.d_o.head<Element>(b, h);
  const int column = threadIdx.x % kLanes * 8;
  uint4 o_values[kPasses], d_o_values[kPasses];
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int row = first + (i * kBeforeThreads + threadIdx.x) / kLanes;
    o_values[i] = d_o_values[i] = uint4{};
    if (row < args.q_len && column < args.head_dim) {
      o_values[i] = *reinterpret_cast<const uint4*>(o + row * args.o.row_stride + column);
      d_o_values[i] = *reinterpret_cast<const uint4*>(d_o + row * args.d_o.row_stride + column);
    }
  }
  float4* sums = reinterpret_cast<float4*>(args.dq_sums + first_padded * kHeadDim);
#pragma unroll 4
  for (int i = threadIdx.x; i < kRows * kHeadDim / 4; i += kBeforeThreads) sums[i] = float4{};

#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int row = (i * kBeforeThreads + threadIdx.x) / kLanes;
    const uint32_t x[4] = {o_values[i].x, o_values[i].y, o_values[i].z, o_values[i].w};
    const uint32_t y[4] = {d_o_values[i].x, d_o_values[i].y, d_o_values[i].z, d_o_values[i].w};
    float d = 0;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float2 u = unpack<Element>(x[pair]), w = unpack<Element>(y[pair]);
      d = fmaf(u.x, w.x, fmaf(u.y, w.y, d));
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      d += __shfl_xor_sync(0xffffffffu, d, distance);
    }
    if (threadIdx.x % kLanes == 0) {
      float base_2 = INFINITY;  // P = 0 for rows out of range and rows that see no key
      if (first + row < args.q_len) {
        const float l = args.logsumexp[static_cast<int64_t>(head) * args.q_len + first + row];
        if (l != -INFINITY) base_2 = l * std::numbers::log2e_v<float>;
      }
      args.logsumexp_base_2[first_padded + row] = base_2;
      args.d[first_padded + row] = d;
    }
  }
}

// Lane l of each four has x[j] = what belongs to lane j; afterwards x[j] = what lane j had for l.
__device__ __forceinline__ void transpose_among_four(uint32_t (&x)[4]) {
  const auto exchange = [](uint32_t& low, uint32_t& high, int distance) {
    const bool upper = threadIdx.x & distance;
    const uint32_t received = __shfl_xor_sync(0xffffffffu, upper ? low : high, distance);
    (upper ? low : high) = received;
  };
  exchange(x[0], x[1], 1);
  exchange(x[2], x[3], 1);
  exchange(x[0], x[2], 2);
  exchange(x[1], x[3], 2);
}

// dQ = scale * its fp32 sums. A warp takes 16 rows x 32 columns at a time.
template <typename Element, int kHeadDim>
__global__ void __launch_bounds__(kAfterThreads)
    backward_after(const __grid_constant__ Arguments args) {
  constexpr int kUnits = kAfterRows / 16 * (kHeadDim / 32);
  const int spans = args.padded_q / kAfterRows;
  const int head = blockIdx.x / spans;
  const int first = blockIdx.x % spans * kAfterRows;
  Element* dq = args.dq.head<Element>(head / args.q_heads, head % args.q_heads);
  const float* sums =
      args.dq_sums + (static_cast<int64_t>(head) * args.padded_q + first) * kHeadDim;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int unit = threadIdx.x / 32; unit < kUnits; unit += kAfterThreads / 32) {
    float v[4][4];
#pragma unroll
    for (int tile = 0; tile < 4; ++tile)
      load_accumulator(sums + (unit * 4 + tile) * 128, lane, v[tile]);
    const int chunk = unit % (kHeadDim / 32) * 4 + lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t x[4];
#pragma unroll
      for (int tile = 0; tile < 4; ++tile) {
        x[tile] = ptx::cvt_rn_x2<Element>(v[tile][half * 2] * args.scale,
                                          v[tile][half * 2 + 1] * args.scale);
      }
      transpose_among_four(x);
      const int row = first + unit / (kHeadDim / 32) * 16 + half * 8 + lane / 4;
      if (row < args.q_len && chunk * 8 < args.head_dim) {
        *reinterpret_cast<uint4*>(dq + row * args.dq.row_stride + chunk * 8) =
            uint4{x[0], x[1], x[2], x[3]};
      }
    }
  }
}

// ---- the host's side ----

// The three launches of a pass.
struct Passes {
  CudaKernel<Arguments> before, main, after;
};

template <typename Element, typename B, bool kDeterministic>
constexpr Passes passes_of() {
  return {{"sm80_backward_before", backward_before<Element, B::kHeadDim>, kBeforeThreads},
          {"sm80_backward_main", backward_main<Element, B, kDeterministic>, B::kThreads,
           sizeof(Shared<Element, B>)},
          {"sm80_backward_after", backward_after<Element, B::kHeadDim>, kAfterThreads}};
}

// The kernels for one head_dim and choice of block sizes.
struct Variant {
  int head_dim;
  BlockSizes blocks;
  int shared_bytes;
  Passes passes[2][2];  // [bf16][deterministic]
};

template <typename B>
constexpr Variant variant_of() {
  return {B::kHeadDim,
          {.q = B::kQ, .kv = B::kKv, .warps = B::kWarps, .stages = B::kStages},
          sizeof(Shared<__half, B>),
          {{passes_of<__half, B, false>(), passes_of<__half, B, true>()},
           {passes_of<__nv_bfloat16, B, false>(), passes_of<__nv_bfloat16, B, true>()}}};
}

// Of the variants for a head_dim, the first that fits the device's shared memory is the one taken
// where the table of block sizes says nothing: those for 227 KB (sm_90), 163 KB (sm_80), 99 KB.
constexpr std::array kVariants{
    variant_of<Blocks<32, 32, 128, 4, 3, 1, 2, 2>>(),
    variant_of<Blocks<64, 32, 128, 4, 2, 1, 2, 2>>(),
    variant_of<Blocks<96, 64, 128, 8, 2, 2, 4, 1>>(),
    variant_of<Blocks<96, 64, 64, 4, 2, 2, 2, 2>>(),
    variant_of<Blocks<128, 64, 128, 8, 3, 2, 2, 1>>(),
    variant_of<Blocks<128, 64, 128, 8, 2, 2, 2, 1>>(),
    variant_of<Blocks<128, 32, 64, 4, 3, 2, 2, 2>>(),
    variant_of<Blocks<192, 64, 64, 8, 3, 4, 2, 1>>(),
    variant_of<Blocks<192, 64, 64, 8, 2, 4, 2, 1>>(),
    variant_of<Blocks<256, 64, 64, 8, 2, 4, 2, 1>>(),
    variant_of<Blocks<256, 32, 64, 8, 2, 2, 2, 1>>(),
};

std::vector<BlockSizes> backward_candidates(const Problem& p, const DeviceInfo& device) {
  return fitting_blocks(kVariants, p, device);
}

BlockSizes choose_backward(const Problem& p, const DeviceInfo& device) {
  return choose_blocks("sm80", p, device, backward_candidates(p, device));
}

std::optional<std::string> why_backward_unsupported(const Problem& p, const DeviceInfo& device) {
  if (auto why = why_unsupported(p, device)) return why;
  if (backward_candidates(p, device).empty()) {
    return "a thread block of this GPU has too little shared memory for this head_dim";
  }
  return std::nullopt;
}

constexpr size_t align_up(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Carves the workspace; with a null base, only its size is meaningful.
struct Workspace {
  Workspace(const Problem& p, void* base) {
    padded_q = (p.q_len + kRowPadding - 1) / kRowPadding * kRowPadding;
    const size_t rows = static_cast<size_t>(p.batch * p.q_heads * padded_q);
    char* at = static_cast<char*>(base);
    const auto take = [&](size_t size) {
      char* taken = at == nullptr ? nullptr : at + bytes;
      bytes += align_up(size);
      return taken;
    };
    dq_sums = reinterpret_cast<float*>(take(rows * compiled_head_dim(p.head_dim) * sizeof(float)));
    logsumexp_base_2 = reinterpret_cast<float*>(take(rows * sizeof(float)));
    d = reinterpret_cast<float*>(take(rows * sizeof(float)));
    turns = reinterpret_cast<int*>(take(rows / kTurnRows * sizeof(int)));
    tickets = reinterpret_cast<int*>(take(sizeof(int)));
  }
  float* dq_sums;
  float* logsumexp_base_2;
  float* d;
  int* turns;
  int* tickets;
  int64_t padded_q = 0;
  size_t bytes = 0;
};

size_t backward_workspace_bytes(const Launch& at) {
  return Workspace(at.problem, nullptr).bytes;
}

// Before: O, dO and L read; D, L in base 2 and the zeros of dQ's sums written. Main: K and V read
// as far as any query sees them, dK and dV written; Q, dO, L and D read by every thread block whose
// keys some query of the block sees, and dQ's sums added to, which counts once. After: the sums
// read, dQ written.
int64_t backward_requested_bytes(const Launch& at) {
  const Problem& p = at.problem;
  const int64_t element = element_size(p.dtype);
  constexpr int64_t kFloat = sizeof(float);
  const int64_t key_end = p.visible_keys(p.q_len - 1);
  int64_t query_rows = 0;  // visited by all thread blocks of one query head
  for (int64_t key = 0; key < key_end; key += at.blocks.kv) {
    query_rows += p.q_len - first_query_that_sees(p, key) / at.blocks.q * at.blocks.q;
  }
  const int64_t visited = p.batch * p.q_heads * query_rows;
  const int64_t before = p.query_elements() * (2 * element + kFloat) + p.query_rows() * 3 * kFloat;
  const int64_t main = p.batch * p.kv_heads * (key_end + p.kv_len) * p.head_dim * 2 * element +
                       visited * (p.head_dim * (2 * element + kFloat) + 2 * kFloat);
  const int64_t after = p.query_elements() * (kFloat + element);
  return before + main + after;
}

template <bool kDeterministic>
const Passes& passes_at(const Launch& at) {
  const Variant& v = *std::ranges::find_if(kVariants, [&](const Variant& candidate) {
    return candidate.head_dim == compiled_head_dim(at.problem.head_dim) &&
           candidate.blocks == at.blocks;
  });
  return v.passes[at.problem.dtype == Dtype::bf16][kDeterministic];
}

template <bool kDeterministic>
std::vector<KernelFacts> backward_facts(const Launch& at) {
  const Passes& passes = passes_at<kDeterministic>(at);
  return {kernel_facts(passes.before), kernel_facts(passes.main), kernel_facts(passes.after)};
}

template <bool kDeterministic>
std::string variant(const Launch& at) {
  return (kDeterministic ? "sm80_backward_deterministic " : "sm80_backward ") + describe(at.blocks);
}

// How many K/V heads' thread blocks are mixed. If causal, the first keys make the most work, and
// are best not left for the end: the first keys of all heads of a section come first. Its Q, dO and
// sums of dQ share the L2 cache.
int64_t section_heads(const Problem& p) {
  if (p.mask == Mask::none) return 1;
  constexpr int64_t kSectionBytes = int64_t{32} << 20;
  const int64_t head_bytes = p.heads_per_kv_head() * p.q_len * compiled_head_dim(p.head_dim) *
                             (2 * element_size(p.dtype) + static_cast<int64_t>(sizeof(float)));
  return std::clamp<int64_t>(kSectionBytes / head_bytes, 1, p.batch * p.kv_heads);
}

Strided strided(const ConstTensorView& t) {
  return {const_cast<void*>(t.data), t.batch_stride, t.head_stride, t.row_stride};
}

template <bool kDeterministic>
void launch_backward(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                     Stream stream) {
  const Problem& p = at.problem;
  const Workspace space(p, workspace);
  const double scale = p.softmax_scale();
  const Arguments args{.q = strided(in.q),
                       .k = strided(in.k),
                       .v = strided(in.v),
                       .o = strided(in.o),
                       .d_o = strided(in.d_o),
                       .dq = strided(out.dq),
                       .dk = strided(out.dk),
                       .dv = strided(out.dv),
                       .logsumexp = in.logsumexp,
                       .dq_sums = space.dq_sums,
                       .logsumexp_base_2 = space.logsumexp_base_2,
                       .d = space.d,
                       .turns = space.turns,
                       .tickets = space.tickets,
                       .batch = static_cast<int>(p.batch),
                       .q_heads = static_cast<int>(p.q_heads),
                       .kv_heads = static_cast<int>(p.kv_heads),
                       .group = static_cast<int>(p.heads_per_kv_head()),
                       .q_len = static_cast<int>(p.q_len),
                       .kv_len = static_cast<int>(p.kv_len),
                       .head_dim = static_cast<int>(p.head_dim),
                       .padded_q = static_cast<int>(space.padded_q),
                       .section_heads = static_cast<int>(section_heads(p)),
                       .key_end = static_cast<int>(p.visible_keys(p.q_len - 1)),
                       .diagonal = static_cast<int>(diagonal(p)),
                       .scale = static_cast<float>(scale),
                       .scale_log2 = static_cast<float>(scale * std::numbers::log2e)};
  const int64_t heads = p.batch * p.q_heads;
  const int64_t key_blocks = (p.kv_len + at.blocks.kv - 1) / at.blocks.kv;
  const Passes& passes = passes_at<kDeterministic>(at);
  const int before_spans = args.padded_q / before_rows(compiled_head_dim(p.head_dim));
  launch_kernel(passes.before, heads * before_spans, args, stream);
  launch_kernel(passes.main, p.batch * p.kv_heads * key_blocks, args, stream);
  launch_kernel(passes.after, heads * (args.padded_q / kAfterRows), args, stream);
}

}  // namespace
}  // namespace flashbench::kernels::sm80

namespace flashbench::kernels {

extern const AttentionKernel kSm80Backward{.name = "sm80_backward",
                                           .family = "sm80",
                                           .device = DeviceKind::cuda,
                                           .pass = Pass::backward,
                                           .needs_aligned_rows = true,
                                           .why_unsupported = sm80::why_backward_unsupported,
                                           .candidates = sm80::backward_candidates,
                                           .choose = sm80::choose_backward,
                                           .variant = sm80::variant<false>,
                                           .workspace_bytes = sm80::backward_workspace_bytes,
                                           .requested_bytes = sm80::backward_requested_bytes,
                                           .facts = sm80::backward_facts<false>,
                                           .launch = sm80::launch_backward<false>};

extern const AttentionKernel kSm80BackwardDeterministic{
    .name = "sm80_backward_deterministic",
    .family = "sm80_deterministic",
    .device = DeviceKind::cuda,
    .pass = Pass::backward,
    .needs_aligned_rows = true,
    .why_unsupported = sm80::why_backward_unsupported,
    .choose = sm80::choose_backward,
    .variant = sm80::variant<true>,
    .workspace_bytes = sm80::backward_workspace_bytes,
    .requested_bytes = sm80::backward_requested_bytes,
    .facts = sm80::backward_facts<true>,
    .launch = sm80::launch_backward<true>};

}  // namespace flashbench::kernels
