// Attention forward on tensor cores of sm_80 and later, with FlashAttention-2's schedule (Dao
// 2023). A thread block owns a block of queries and loops over the blocks of keys, from the last
// one that it sees to the first. Each warp owns whole rows, so that the online softmax stays in
// registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>
#include <numbers>

#include "kernels/common/variant.h"
#include "kernels/mma/shared_tile.h"
#include "kernels/ptx/cp_async.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/ldmatrix.h"
#include "kernels/ptx/mma.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/tid.h"
#include "kernels/sm80/forward_places.cuh"

namespace flashbench::kernels::sm80 {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The running maximum in the exponents may lag behind the true maximum by up to this power of two
// before O and the sum are rescaled. P then stays far below the largest fp16.
inline constexpr float kRescaleThreshold = 8;
inline constexpr float kLargestP = 256;

template <typename T, template <int> typename PlaceOf, int kHeadDim, int kBlockQ, int kBlockKv,
          int kWarps, int kStages>
struct Forward {
  using Place = PlaceOf<kBlockQ>;
  using Arguments = typename Place::Arguments;

  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRowTiles = kBlockQ / kWarps / 16;  // of 16 rows, per warp
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kKeyTiles = kBlockKv / 8;
  static constexpr int kDimTiles = kHeadDim / 8;
  static constexpr int kDimSteps = kHeadDim / 16;
  static_assert(kBlockQ % (16 * kWarps) == 0 && kBlockKv % 32 == 0);

  // Registers per thread for fragments of Q, S and O. Q stays in registers where there is room;
  // there is none beside an O of 32 rows x 128 columns or 16 rows x 256 columns.
  static constexpr int kQRegisters = kRowTiles * kDimSteps * 4;
  static constexpr int kSoRegisters = kRowTiles * (kKeyTiles + kDimTiles) * 4;
  static constexpr bool kKeepQ = kQRegisters + kSoRegisters <= 192;

  // A multiprocessor has 64K registers. The rest of the kernel needs about 40 registers per thread.
  static constexpr int kRegisters = kSoRegisters + (kKeepQ ? kQRegisters : 0) + 40;
  static constexpr int kWarpsPerSm = kRegisters <= 128 ? 16 : kRegisters <= 168 ? 12 : 8;
  static constexpr int kBlocksPerSm = kWarpsPerSm / kWarps;

  // If products are short, P is first computed with the running maximum, which saves finding the
  // maximum of the block: 17% faster at head_dim 32, 4% at 64, slower from 96 on. K must stay in
  // shared memory until P is complete.
  static constexpr bool kTryMaximum = kHeadDim <= 64 && kStages == 2;

  using QTile = mma::SharedTile<kBlockQ, kHeadDim>;
  using KvTile = mma::SharedTile<kBlockKv, kHeadDim>;
  // Byte offsets in shared memory.
  static constexpr int kSharedQ = 0;
  static constexpr int kSharedK = QTile::kBytes;
  static constexpr int kSharedV = kSharedK + kStages * KvTile::kBytes;
  static constexpr int kSharedBytes = kSharedV + kStages * KvTile::kBytes;

  // Copies the rows that exist of `head_dim` columns to a tile; fills the rest with zeros. Values
  // derived from the thread index are recomputed for every tile. When the loop kept them in
  // registers, head_dim 128 spilled 84 bytes per thread and ran 2% slower.
  template <typename Tile, int kRows, typename Source>
  static __device__ void load(uint32_t tile, Source from, int head_dim) {
    constexpr int kRowsPerPass = kThreads / Tile::kRowChunks;
    static_assert(kRows % kRowsPerPass == 0 && kRowsPerPass % 8 == 0);
    const int thread = ptx::tid_x();
    const int chunk = thread % Tile::kRowChunks, first_row = thread / Tile::kRowChunks;
    tile += Tile::chunk_offset(first_row, chunk);
    from.turn_to(first_row);
#pragma unroll
    for (int row = 0; row < kRows; row += kRowsPerPass) {
      const T* const at = from.address() + chunk * 8;
#pragma unroll
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        const bool inside = from.has(row) && panel * Tile::kPanelColumns + chunk * 8 < head_dim;
        ptx::cp_async_16(tile + panel * Tile::kPanelBytes + row * Tile::kRowBytes,
                         at + panel * Tile::kPanelColumns, inside ? 16 : 0);
      }
      from.turn_by(kRowsPerPass);
    }
  }

  // Loads one 16x16 fragment of Q for each row tile: the warp's rows, columns of `step`.
  static __device__ void load_q(uint32_t (&q)[kRowTiles][4], uint32_t q_lane, int step) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      ptx::ldmatrix_x4(q[r], QTile::column_step(q_lane, step) + r * 16 * QTile::kRowBytes);
    }
  }

  // S = Q K^T. Fragments of K are loaded one step ahead.
  static __device__ void multiply_qk(float (&s)[kRowTiles][kKeyTiles][4],
                                     uint32_t (&kept_q)[kKeepQ ? kDimSteps : 1][kRowTiles][4],
                                     uint32_t q_lane, uint32_t k_lane) {
    constexpr int kPairs = kKeyTiles / 2;
    uint32_t q[2][kRowTiles][4], k[2][4];
    const auto load_k = [&](int step, int pair) {
      ptx::ldmatrix_x4(k[pair % 2],
                       KvTile::column_step(k_lane, step) + pair * 16 * KvTile::kRowBytes);
    };
    if constexpr (!kKeepQ) load_q(q[0], q_lane, 0);
    load_k(0, 0);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
        for (float& x : s[r][t]) x = 0;
      }
    }
#pragma unroll
    for (int step = 0; step < kDimSteps; ++step) {
      if (!kKeepQ && step + 1 < kDimSteps) load_q(q[(step + 1) % 2], q_lane, step + 1);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        if (pair + 1 < kPairs) {
          load_k(step, pair + 1);
        } else if (step + 1 < kDimSteps) {
          load_k(step + 1, 0);
        }
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          const auto& a = kKeepQ ? kept_q[kKeepQ ? step : 0][r] : q[step % 2][r];
          ptx::mma_m16n8k16<T>(s[r][2 * pair], a, k[pair % 2][0], k[pair % 2][1]);
          ptx::mma_m16n8k16<T>(s[r][2 * pair + 1], a, k[pair % 2][2], k[pair % 2][3]);
        }
      }
    }
  }

  // O += P V. Fragments of V are loaded one step ahead.
  static __device__ void multiply_pv(float (&o)[kRowTiles][kDimTiles][4],
                                     const uint32_t (&p)[kRowTiles][kKeyTiles / 2][4],
                                     uint32_t v_lane) {
    uint32_t v[2][4];
    const auto load_v = [&](int step, int pair) {
      ptx::ldmatrix_x4_trans(v[pair % 2],
                             KvTile::column_step(v_lane, pair) + step * 16 * KvTile::kRowBytes);
    };
    load_v(0, 0);
#pragma unroll
    for (int step = 0; step < kKeyTiles / 2; ++step) {
#pragma unroll
      for (int pair = 0; pair < kDimSteps; ++pair) {
        if (pair + 1 < kDimSteps) {
          load_v(step, pair + 1);
        } else if (step + 1 < kKeyTiles / 2) {
          load_v(step + 1, 0);
        }
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          ptx::mma_m16n8k16<T>(o[r][2 * pair], p[r][step], v[pair % 2][0], v[pair % 2][1]);
          ptx::mma_m16n8k16<T>(o[r][2 * pair + 1], p[r][step], v[pair % 2][2], v[pair % 2][3]);
        }
      }
    }
  }

  // Scales scores to the softmax's exponents in base 2. Scaling here, and not in the multiply-add
  // of the exponent, costs 2% but keeps the exponent of a row's maximum at exactly 0.
  static __device__ void scale(float (&s)[kRowTiles][kKeyTiles][4], float factor) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
        for (float& x : s[r][t]) x = __fmul_rn(x, factor);
      }
    }
  }

  // Scores of keys that a row does not see become -infinity. seen(i) counts from this lane's first
  // key; `i` is one of its rows, 2 per row tile.
  template <typename Seen>
  static __device__ void mask(float (&s)[kRowTiles][kKeyTiles][4], Seen seen) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const SeenKeys rows[2] = {seen(2 * r), seen(2 * r + 1)};
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = 8 * t + e % 2;
          if (key >= rows[e / 2].end) s[r][t][e] = -kInfinity;
          if constexpr (Place::kHasFirst) {
            if (key < rows[e / 2].first) s[r][t][e] = -kInfinity;
          }
        }
      }
    }
  }

  // The base of the exponents: the maximum, or 0 for a row that has seen no key, whose P must be 0
  // and not NaN.
  static __device__ float base_of(float maximum) {
    return maximum == -kInfinity ? 0 : maximum;
  }

  // If any maximum has grown too much, raises the maxima to those of S, in base 2, and rescales the
  // sums and O.
  static __device__ void raise_maximum(const float (&s)[kRowTiles][kKeyTiles][4],
                                       float (&maximum)[2 * kRowTiles], float (&sum)[2 * kRowTiles],
                                       float (&o)[kRowTiles][kDimTiles][4]) {
    float new_maximum[2 * kRowTiles];
    bool grown = false;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const auto& tiles = s[i / 2];
      const int e = i % 2 * 2;
      float m = fmaxf(tiles[0][e], tiles[0][e + 1]);
#pragma unroll
      for (int t = 1; t < kKeyTiles; ++t) m = fmaxf(m, fmaxf(tiles[t][e], tiles[t][e + 1]));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      new_maximum[i] = fmaxf(m, maximum[i]);
      // Also true for NaN, the difference in a row that has seen no key so far.
      grown |= !(new_maximum[i] - maximum[i] <= kRescaleThreshold);
    }
    if (__any_sync(~0u, grown)) {
#pragma unroll
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        const float factor = ptx::ex2_approx_ftz(maximum[i] - base_of(new_maximum[i]));
        maximum[i] = new_maximum[i];
        sum[i] *= factor;
#pragma unroll
        for (int t = 0; t < kDimTiles; ++t) {
          o[i / 2][t][i % 2 * 2] *= factor;
          o[i / 2][t][i % 2 * 2 + 1] *= factor;
        }
      }
    }
  }

  // P = 2^(S - base), rounded only as an operand of P V. Each lane sums only its own columns.
  static __device__ void exponentiate(float (&s)[kRowTiles][kKeyTiles][4],
                                      uint32_t (&p)[kRowTiles][kKeyTiles / 2][4],
                                      const float (&base)[2 * kRowTiles],
                                      float (&sum)[2 * kRowTiles]) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[r][t][e] = ptx::ex2_approx_ftz(s[r][t][e] - base[2 * r + e / 2]);
          sum[2 * r + e / 2] += s[r][t][e];
        }
        // Two accumulator tiles have the layout of one fragment of A.
        p[r][t / 2][t % 2 * 2] = ptx::cvt_rn_x2<T>(s[r][t][0], s[r][t][1]);
        p[r][t / 2][t % 2 * 2 + 1] = ptx::cvt_rn_x2<T>(s[r][t][2], s[r][t][3]);
      }
    }
  }

  // Computes P of an unmasked block relative to the running maxima, without waiting for the block's
  // own maxima. Returns false and changes nothing if a sum shows that they lag behind too far.
  static __device__ bool try_maximum(uint32_t (&p)[kRowTiles][kKeyTiles / 2][4],
                                     uint32_t (&kept_q)[kKeepQ ? kDimSteps : 1][kRowTiles][4],
                                     uint32_t q_lane, uint32_t k_lane, float scale_log2,
                                     const float (&maximum)[2 * kRowTiles],
                                     float (&sum)[2 * kRowTiles]) {
    float s[kRowTiles][kKeyTiles][4];
    multiply_qk(s, kept_q, q_lane, k_lane);
    scale(s, scale_log2);
    float block_sum[2 * kRowTiles] = {};
    exponentiate(s, p, maximum, block_sum);
    bool small = true;  // also false for a NaN sum, and for a row without a maximum
#pragma unroll
    for (float x : block_sum) small &= x <= kLargestP;
    if (!__all_sync(~0u, small)) return false;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) sum[i] += block_sum[i];
    return true;
  }

  // Stores O / sum and the logsumexp of this warp's rows. O goes through the warp's rows of Q's
  // tile, which no other warp reads, so that it is stored in whole 16-byte chunks.
  static __device__ void store(const Arguments& a, const Place& at, int query_rows, char* tile,
                               const float (&o)[kRowTiles][kDimTiles][4],
                               const float (&maximum)[2 * kRowTiles],
                               const float (&sum)[2 * kRowTiles]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp_row = static_cast<int>(threadIdx.x) / 32 * kWarpRows;
    const int first_query = at.q_block * kBlockQ;
    float* logsumexp = a.tensors.logsumexp + at.logsumexp_offset(a, first_query);
    __syncwarp();  // all lanes have read their Q
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      float total = sum[i];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const float inverse = total == 0 ? 0 : 1 / total;  // 0 for a row that saw no key
      const int row = warp_row + lane / 4 + 8 * i;
      if (lane % 4 == 0 && row < query_rows) {
        logsumexp[row] = (maximum[i] + log2f(total)) * std::numbers::ln2_v<float>;
      }
#pragma unroll
      for (int t = 0; t < kDimTiles; ++t) {
        const float* pair = o[i / 2][t] + i % 2 * 2;
        const int offset = t / QTile::kRowChunks * QTile::kPanelBytes +
                           QTile::chunk_offset(row, t % QTile::kRowChunks) + lane % 4 * 4;
        *reinterpret_cast<uint32_t*>(tile + offset) =
            ptx::cvt_rn_x2<T>(pair[0] * inverse, pair[1] * inverse);
      }
    }
    __syncwarp();
    T* out = static_cast<T*>(a.tensors.o) + at.q_offset(a.tensors.o_strides, first_query);
    constexpr int kRowsPerPass = 32 / QTile::kRowChunks;
    const int chunk = lane % QTile::kRowChunks;
#pragma unroll
    for (int i = 0; i < kWarpRows; i += kRowsPerPass) {
      const int row = warp_row + i + lane / QTile::kRowChunks;
#pragma unroll
      for (int panel = 0; panel < QTile::kPanels; ++panel) {
        const int column = panel * QTile::kPanelColumns + chunk * 8;
        if (row < query_rows && column < a.head_dim) {
          *reinterpret_cast<int4*>(out + row * a.tensors.o_strides.row + column) =
              *reinterpret_cast<const int4*>(tile + panel * QTile::kPanelBytes +
                                             QTile::chunk_offset(row, chunk));
        }
      }
    }
  }

  static __device__ void run(const Arguments& a) {
    extern __shared__ __align__(1024) char shared_memory[];
    const uint32_t shared = ptx::shared_address(shared_memory);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp_row = static_cast<int>(threadIdx.x) / 32 * kWarpRows;

    const Place at(a, static_cast<int>(blockIdx.x));
    if (!at.exists()) return;
    const int first_query = at.q_block * kBlockQ;
    const int query_rows = min(kBlockQ, at.q_len(a) - first_query);

    const int first_key = at.first_seen(a, first_query);
    const int key_end = max(0, at.seen(a, first_query + query_rows - 1).end);
    // Blocks of keys that all queries see whole.
    const int unmasked_end = max(0, at.seen(a, first_query).end) / kBlockKv;
    const int unmasked_begin =
        (at.first_seen(a, first_query + query_rows - 1) + kBlockKv - 1) / kBlockKv;
    // What the warp's queries see.
    const int warp_key_end =
        warp_row < query_rows ? at.seen(a, first_query + warp_row + kWarpRows - 1).end : 0;
    const int warp_first_key = at.first_seen(a, first_query + warp_row);
    const auto load_keys = [&](uint32_t tile, const void* tensor, const Strides& strides,
                               int block) {
      load<KvTile, kBlockKv>(
          tile, at.template keys<T>(a, tensor, strides, block * kBlockKv, {first_key, key_end}),
          a.head_dim);
    };
    const auto load_k = [&](int block, int stage) {
      load_keys(shared + kSharedK + stage * KvTile::kBytes, a.tensors.k, a.tensors.k_strides,
                block);
    };
    const auto load_v = [&](int block, int stage) {
      load_keys(shared + kSharedV + stage * KvTile::kBytes, a.tensors.v, a.tensors.v_strides,
                block);
    };

    const int first_block = first_key / kBlockKv;
    int block = (key_end + kBlockKv - 1) / kBlockKv - 1;
    if (block >= first_block) {
      const T* q =
          static_cast<const T*>(a.tensors.q) + at.q_offset(a.tensors.q_strides, first_query);
      load<QTile, kBlockQ>(shared + kSharedQ,
                           StridedRows<T>{q, a.tensors.q_strides.row, query_rows}, a.head_dim);
      ptx::cp_async_commit_group();
      load_k(block, 0);
      if constexpr (kStages == 2) load_v(block, 0);
      ptx::cp_async_commit_group();
    }

    // The addresses from which this lane reads fragments of Q, K and V.
    const uint32_t q_lane =
        shared + kSharedQ + QTile::chunk_offset(warp_row + lane % 16, lane / 16);
    const uint32_t k_lane =
        shared + kSharedK + KvTile::chunk_offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const uint32_t v_lane = shared + kSharedV + KvTile::chunk_offset(lane % 16, lane / 16);

    uint32_t kept_q[kKeepQ ? kDimSteps : 1][kRowTiles][4];
    if constexpr (kKeepQ) {
      ptx::cp_async_wait_group<1>();
      __syncthreads();  // Q has arrived
#pragma unroll
      for (int step = 0; step < kDimSteps; ++step) load_q(kept_q[step], q_lane, step);
    }

    float o[kRowTiles][kDimTiles][4] = {};
    float maximum[2 * kRowTiles], sum[2 * kRowTiles];
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      maximum[i] = -kInfinity;
      sum[i] = 0;
    }

    // One step of the online softmax: turns S into P.
    const auto softmax_step = [&](float(&s)[kRowTiles][kKeyTiles][4],
                                  uint32_t(&p)[kRowTiles][kKeyTiles / 2][4], int block) {
      scale(s, a.scale_log2);
      if (block >= unmasked_end || block < unmasked_begin) {
        mask(s, [&](int i) {
          const SeenKeys keys = at.seen(a, first_query + warp_row + lane / 4 + 8 * i);
          const int before = block * kBlockKv + lane % 4 * 2;
          return SeenKeys{keys.first - before, keys.end - before};
        });
      }
      raise_maximum(s, maximum, sum, o);
      float base[2 * kRowTiles];
#pragma unroll
      for (int i = 0; i < 2 * kRowTiles; ++i) base[i] = base_of(maximum[i]);
      exponentiate(s, p, base, sum);
    };

    // The first block is excluded: it has no maximum to try.
    const int tried_end = kTryMaximum ? min(unmasked_end, block) : 0;
    int stage = 0;
    for (; block >= first_block; --block) {
      ptx::cp_async_wait_group<0>();
      __syncthreads();  // K of this block has arrived, and all warps have finished the previous
                        // block
      if constexpr (kStages == 1) {
        load_v(block, 0);
        ptx::cp_async_commit_group();
      } else if (block > first_block) {
        load_k(block - 1, stage ^ 1);
        load_v(block - 1, stage ^ 1);
        ptx::cp_async_commit_group();
      }

      // A warp may see no key of a block that other warps of its thread block see.
      const bool sees = block * kBlockKv < warp_key_end && (block + 1) * kBlockKv > warp_first_key;
      const uint32_t k_block = k_lane + stage * KvTile::kBytes;
      float s[kRowTiles][kKeyTiles][4];
      uint32_t p[kRowTiles][kKeyTiles / 2][4];
      if constexpr (kStages == 1) {
        if (sees) multiply_qk(s, kept_q, q_lane, k_block);
        ptx::cp_async_wait_group<0>();
        __syncthreads();  // V has arrived, and all warps have finished with K
        if (block > first_block) {
          load_k(block - 1, 0);
          ptx::cp_async_commit_group();
        }
        if (sees) softmax_step(s, p, block);
      } else if (sees && !(kTryMaximum && block < tried_end && block >= unmasked_begin &&
                           try_maximum(p, kept_q, q_lane, k_block, a.scale_log2, maximum, sum))) {
        multiply_qk(s, kept_q, q_lane, k_block);
        softmax_step(s, p, block);
      }
      if (sees) multiply_pv(o, p, v_lane + stage * KvTile::kBytes);
      if constexpr (kStages == 2) stage ^= 1;
    }
    ptx::cp_async_wait_group<0>();

    store(a, at, query_rows, shared_memory + kSharedQ, o, maximum, sum);
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocksPerSm)
    forward_kernel(const __grid_constant__ typename Kernel::Arguments arguments) {
  Kernel::run(arguments);
}

// For both dtypes.
template <template <int> typename PlaceOf, int kHeadDim, int kBlockQ, int kBlockKv, int kWarps,
          int kStages>
constexpr Variant<typename PlaceOf<kBlockQ>::Arguments> forward_variant() {
  using Half = Forward<__half, PlaceOf, kHeadDim, kBlockQ, kBlockKv, kWarps, kStages>;
  using BFloat16 = Forward<__nv_bfloat16, PlaceOf, kHeadDim, kBlockQ, kBlockKv, kWarps, kStages>;
  static_assert(Half::kSharedBytes == BFloat16::kSharedBytes);
  return {kHeadDim,
          {.q = kBlockQ, .kv = kBlockKv, .warps = kWarps, .stages = kStages},
          Half::kThreads,
          Half::kSharedBytes,
          forward_kernel<Half>,
          forward_kernel<BFloat16>};
}

}  // namespace flashbench::kernels::sm80
