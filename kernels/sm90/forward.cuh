// Attention forward for Hopper (sm_90a). A thread block owns a block of queries of one head at a
// time and walks over the blocks of keys, from the last that it sees to the first. Its warpgroups
// have roles: of the producer, one warp has the copy engine (TMA) bring K and V to shared memory,
// another Q, both as far ahead as there is room; each consumer has 64 queries, multiplies by wgmma
// and keeps S, P and O in registers.
//
// A consumer multiplies P V of one block of keys and Q K^T of the next at once, then takes the
// softmax, beside which the others' products run. A tile's O is stored beside the next tile's first
// product.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <limits>
#include <numbers>

#include "kernels/common/sections.cuh"
#include "kernels/ptx/barrier.h"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/setmaxnreg.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/forward_blocks.h"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The exponents may refer to a maximum of the scores that lags behind the true one, as long as a
// thread's P of a block of keys add up to no more than this, far below the largest fp16. Where a
// block is looked at closely, its maximum may be ahead by this power of two before O and the sum
// are rescaled: the next block, if it is like this one, has a sum that is small enough.
inline constexpr float kLargestSum = 256;
inline constexpr float kRescaleThreshold = 3;

struct Config {
  int head_dim;  // multiple of 32
  int block_q;   // kConsumerRows for each consumer
  int block_kv;  // multiple of 16
  int stages;    // blocks of K, and of V, in shared memory
  bool stage_o;  // O goes through shared memory of its own
  bool turns;    // consumers issue their products in turn
  int at_once;   // thread blocks of a multiprocessor
};

constexpr Config configuration(int head_dim, int block_q, int block_kv, int stages) {
  // At head_dim 256 shared memory has no room for O, and turns gain 2%; elsewhere they lose.
  const bool large = head_dim > 192;
  return {.head_dim = head_dim,
          .block_q = block_q,
          .block_kv = block_kv,
          .stages = stages,
          .stage_o = !large,
          .turns = large,
          .at_once = thread_blocks_at_once(head_dim, block_q)};
}

struct Arguments {
  CUtensorMap q, k, v, staged_o;  // of [batch, heads, rows, head_dim]
  void* o;
  float* logsumexp;
  int64_t o_batch_stride, o_head_stride, o_row_stride;  // in elements
  int heads, heads_per_kv_head, q_len, kv_len, head_dim;
  int diagonal;  // query i sees keys 0 to i + diagonal
  int q_blocks, batch_heads, section_heads;
  unsigned* last_taken;  // see take_tile; starts at UINT_MAX
  float scale_log2;      // takes Q K^T to the softmax's exponents in base 2

  // How many keys a query sees; may be 0 or less.
  __device__ int visible_keys(int query) const { return min(kv_len, query + diagonal + 1); }
};

// A block of queries of one head, and how many blocks of keys it sees.
struct alignas(16) Tile {
  int batch, head, first_query, kv_blocks;
};

template <typename T, Config kConfig, typename Delay = NoDelay>
struct Forward : Barriers<Delay> {
  using Barriers<Delay>::arrive, Barriers<Delay>::is_full, Barriers<Delay>::wait;

  static constexpr int kHeadDim = kConfig.head_dim;
  static constexpr int kBlockQ = kConfig.block_q;
  static constexpr int kBlockKv = kConfig.block_kv;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kConsumers = kBlockQ / kConsumerRows;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static_assert(kHeadDim % 32 == 0 && kBlockKv % 16 == 0);
  static constexpr int kAtOnce = kConfig.at_once;

  // Of a thread: those of a multiprocessor are for all its thread blocks, in eights.
  static constexpr int kLaunchRegisters = 65536 / (kThreads * kAtOnce) / 8 * 8;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters =
      (kLaunchRegisters * (1 + kConsumers) - kProducerRegisters) / kConsumers / 8 * 8;
  static_assert(kConsumerRegisters <= 255);
  static_assert(!kConfig.turns || kConsumers == 2);

  static constexpr int kPanels = (kHeadDim + 63) / 64;
  static constexpr int kQPanelBytes = kConsumerRows * kRowBytes;
  static constexpr int kKvPanelBytes = kBlockKv * kRowBytes;
  static constexpr int kOPanelBytes = kWarpRows * kRowBytes;  // of a warp

  static constexpr int kSFloats = kBlockKv / 2;  // registers of a thread for 64 rows
  static constexpr int kOFloats = kHeadDim / 2;
  static constexpr int kPSteps = kBlockKv / 16;

  // Tiles that the producer may be ahead by, with the one that consumers are at.
  static constexpr int kTileSlots = 4;

  struct Shared {
    alignas(1024) char q[kConsumers][kPanels * kQPanelBytes];
    alignas(1024) char k[kStages][kPanels * kKvPanelBytes];
    alignas(1024) char v[kStages][kPanels * kKvPanelBytes];
    alignas(1024) char o[kConfig.stage_o ? 4 * kConsumers : 0][kPanels * kOPanelBytes];  // of warps
    // Of a buffer: `full` when it has been filled, `empty` when it may be filled again.
    uint64_t q_full[kConsumers], q_empty[kConsumers];
    uint64_t k_full[kStages], k_empty[kStages];
    uint64_t v_full[kStages], v_empty[kStages];
    uint64_t tile_full[kTileSlots], tile_empty[kTileSlots];
    Tile tiles[kTileSlots];
  };
  using Ring = RingPosition<kStages>;
  using TileRing = RingPosition<kTileSlots>;

  static __device__ void initialise_barriers(Shared& shared) {
    constexpr int kWarps = 4;  // of a warpgroup, each of which says when it is done
    for (int i = 0; i < kConsumers; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.q_full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.q_empty[i]), kWarps);
    }
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.k_full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.v_full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.k_empty[i]), kWarps * kConsumers);
      ptx::mbarrier_init(ptx::shared_address(&shared.v_empty[i]), kWarps * kConsumers);
    }
    for (int i = 0; i < kTileSlots; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.tile_full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.tile_empty[i]), 1 + kWarps * kConsumers);
    }
    ptx::fence_mbarrier_init();
  }

  // The last blocks of queries, which see the most keys if causal, come first.
  static __device__ Tile tile_at(const Arguments& a, int index) {
    const SectionItem item = item_in_sections(index, a.batch_heads, a.section_heads, a.q_blocks);
    const int first_query = (a.q_blocks - 1 - item.block) * kBlockQ;
    return {item.head / a.heads, item.head % a.heads, first_query,
            kv_blocks(a, first_query, kBlockQ)};
  }
  static constexpr int kNoTile = -1;  // as kv_blocks: there is none any more

  // How many blocks of keys these queries see, as far as they exist.
  static __device__ int kv_blocks(const Arguments& a, int first_query, int queries) {
    if (first_query >= a.q_len) return 0;
    const int keys = a.visible_keys(min(first_query + queries, a.q_len) - 1);
    return (max(0, keys) + kBlockKv - 1) / kBlockKv;
  }

  // ---- The producer

  // One block of rows of a head.
  template <int kPanelBytes>
  static __device__ void copy(const CUtensorMap& tensor, char* to, uint64_t& full, int row,
                              int head, int batch, ptx::CachePolicy policy) {
    const uint32_t barrier = ptx::shared_address(&full);
    ptx::mbarrier_arrive_expect_tx(barrier, kPanels * kPanelBytes);
    load_rows<kPanels, kPanelBytes>(tensor, to, barrier, row, head, batch, policy);
  }

  // A number from 0 on that no other thread block is given; `tiles` of them are taken in a launch,
  // one after every tile. The counter goes round, so that the last one taken leaves it as it has to
  // be for the next launch: at `tiles` - 1 or above.
  static __device__ unsigned take_tile(unsigned* last_taken, unsigned tiles) {
    const unsigned last = atomicInc(last_taken, tiles - 1);
    return last >= tiles - 1 ? 0 : last + 1;
  }

  // To the L2 cache, while there is no room in shared memory.
  static __device__ void prefetch_q(const Arguments& a, const Tile& tile) {
#pragma unroll
    for (int i = 0; i < kConsumers * kPanels; ++i) {
      ptx::cp_async_bulk_prefetch_tensor_4d(a.q, i % kPanels * 64,
                                            tile.first_query + i / kPanels * kConsumerRows,
                                            tile.head, tile.batch);
    }
  }

  // Takes tiles, makes them known, and loads their K and V. A tile is taken when the one before has
  // been loaded, no earlier, so that thread blocks end together.
  static __device__ void produce_kv(const Arguments& a, Shared& shared) {
    Ring ring;
    const unsigned tiles = static_cast<unsigned>(a.batch_heads * a.q_blocks);
    unsigned index = blockIdx.x;
    for (TileRing tile_ring;; tile_ring.advance()) {
      const bool more = index < tiles;
      const Tile tile = more ? tile_at(a, static_cast<int>(index)) : Tile{0, 0, 0, kNoTile};
      wait(shared.tile_empty[tile_ring.stage], tile_ring.parity ^ 1);
      shared.tiles[tile_ring.stage] = tile;
      arrive(shared.tile_full[tile_ring.stage]);
      if (!more) return;
      const int kv_head = tile.head / a.heads_per_kv_head;
      for (int block = tile.kv_blocks - 1; block >= 0; --block, ring.advance()) {
        wait(shared.k_empty[ring.stage], ring.parity ^ 1);
        copy<kKvPanelBytes>(a.k, shared.k[ring.stage], shared.k_full[ring.stage], block * kBlockKv,
                            kv_head, tile.batch, ptx::CachePolicy::evict_last);
        wait(shared.v_empty[ring.stage], ring.parity ^ 1);
        copy<kKvPanelBytes>(a.v, shared.v[ring.stage], shared.v_full[ring.stage], block * kBlockKv,
                            kv_head, tile.batch, ptx::CachePolicy::evict_last);
      }
      index = gridDim.x + take_tile(a.last_taken, tiles);
    }
  }

  // Loads Q of the tiles that see a key: to the L2 cache while there is no room in shared memory.
  static __device__ void produce_q(const Arguments& a, Shared& shared) {
    uint32_t parity = 0;
    for (TileRing tile_ring;; tile_ring.advance()) {
      wait(shared.tile_full[tile_ring.stage], tile_ring.parity);
      const Tile tile = shared.tiles[tile_ring.stage];
      arrive(shared.tile_empty[tile_ring.stage]);
      if (tile.kv_blocks == kNoTile) return;
      if (tile.kv_blocks == 0) continue;
      prefetch_q(a, tile);
      for (int i = 0; i < kConsumers; ++i) {
        wait(shared.q_empty[i], parity ^ 1);
        copy<kQPanelBytes>(a.q, shared.q[i], shared.q_full[i], tile.first_query + kConsumerRows * i,
                           tile.head, tile.batch, ptx::CachePolicy::evict_first);
      }
      parity ^= 1;
    }
  }

  // ---- A consumer

  // S = Q K^T, under way.
  static __device__ void issue_qk(float (&s)[kSFloats], ptx::WgmmaMatrix q, ptx::WgmmaMatrix k) {
    ptx::keep_here(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      const int panel = step / 4, bytes = step % 4 * 32;
      ptx::Wgmma<kBlockKv>::template multiply_shared<T>(s, q.advance(panel * kQPanelBytes + bytes),
                                                        k.advance(panel * kKvPanelBytes + bytes),
                                                        step > 0);
    }
    ptx::wgmma_commit_group();
  }

  // O += P V, under way.
  static __device__ void issue_pv(float (&o)[kOFloats], const uint32_t (&p)[kPSteps][4],
                                  ptx::WgmmaMatrix v) {
    ptx::keep_here(o);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kPSteps; ++step) {
      ptx::Wgmma<kHeadDim>::template multiply_registers<T>(o, p[step],
                                                           v.advance(step * 16 * kRowBytes));
    }
    ptx::wgmma_commit_group();
  }

  // The softmax of the two rows of a thread so far; `sum` is over this thread's columns only.
  struct Rows {
    float maximum[2] = {-kInfinity, -kInfinity};
    float sum[2] = {0, 0};
  };

  // Scores of keys that a row does not see become -infinity. `visible` counts from the first key of
  // this lane.
  static __device__ void mask(float (&s)[kSFloats], const int (&visible)[2]) {
#pragma unroll
    for (int i = 0; i < kSFloats; ++i) {
      if (i / 4 * 8 + i % 2 >= visible[i / 2 % 2]) s[i] = -kInfinity;
    }
  }

  // Takes scores to the softmax's exponents in base 2.
  static __device__ void scale(float (&s)[kSFloats], float factor) {
#pragma unroll
    for (int i = 0; i < kSFloats; ++i) s[i] = __fmul_rn(s[i], factor);
  }

  // Raises the maxima to those of S, in base 2, and rescales the sums and O so far, if any maximum
  // has grown too much.
  static __device__ void raise_maximum(const float (&s)[kSFloats], Rows& rows,
                                       float (&o)[kOFloats]) {
    float maximum[2];
    bool grown = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float m[2] = {s[2 * i], s[2 * i + 1]};
#pragma unroll
      for (int j = 4; j < kSFloats; j += 4) {
        m[0] = fmaxf(m[0], s[j + 2 * i]);
        m[1] = fmaxf(m[1], s[j + 2 * i + 1]);
      }
      m[0] = fmaxf(m[0], m[1]);
      m[0] = fmaxf(m[0], __shfl_xor_sync(~0u, m[0], 1));
      m[0] = fmaxf(m[0], __shfl_xor_sync(~0u, m[0], 2));
      maximum[i] = fmaxf(rows.maximum[i], m[0]);
      // True also for the NaN of a row that has seen no key so far.
      grown |= !(maximum[i] - rows.maximum[i] <= kRescaleThreshold);
    }
    if (!__any_sync(~0u, grown)) return;
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      factor[i] = ptx::ex2_approx_ftz(rows.maximum[i] - base_of(maximum[i]));
      rows.sum[i] *= factor[i];
      rows.maximum[i] = maximum[i];
    }
#pragma unroll
    for (int i = 0; i < kOFloats; ++i) o[i] *= factor[i / 2 % 2];
  }

  // What exponents are taken relative to: the maximum, or 0 for a row that has seen no key, whose
  // P must be 0 and not NaN.
  static __device__ float base_of(float maximum) {
    return maximum == -kInfinity ? 0 : maximum;
  }

  // P = 2^(S - base), or of an S that has yet to be scaled; its sums by rows are added to `sum`.
  // The layout of accumulators, rounded, is that of the operand A.
  template <bool kScaled>
  static __device__ void exponentiate(const float (&s)[kSFloats], uint32_t (&p)[kPSteps][4],
                                      const float (&base)[2], float (&sum)[2], float scale_log2) {
#pragma unroll
    for (int i = 0; i < kSFloats; i += 2) {
      const int row = i / 2 % 2;
      float x[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        x[j] = ptx::ex2_approx_ftz(kScaled ? s[i + j] - base[row]
                                           : __fmaf_rn(s[i + j], scale_log2, -base[row]));
        sum[row] += x[j];
      }
      p[i / 8][i / 2 % 4] = ptx::cvt_rn_x2<T>(x[0], x[1]);
    }
  }

  // P relative to the maxima so far, so that nothing waits for the block's own. False, and nothing
  // has changed, if a sum shows that they lag behind too far, or that the exponents may all be 0:
  // the product in the exponent's multiply-add is not rounded as the maximum was, which would leave
  // a trace of 1e-7 in what is exact for equal scores.
  static __device__ bool try_maximum(const float (&s)[kSFloats], uint32_t (&p)[kPSteps][4],
                                     Rows& rows, float scale_log2) {
    constexpr float kOnes = kSFloats / 2, kTrace = kOnes * 0x1p-16f;
    static_assert(kOnes * 8 <= kLargestSum);  // 2^kRescaleThreshold
    float sum[2] = {0, 0};
    exponentiate<false>(s, p, rows.maximum, sum, scale_log2);
    bool good = true;  // false also for a sum of NaN, and that of a row without a maximum
#pragma unroll
    for (float x : sum) good &= x <= kLargestSum && fabsf(x - kOnes) > kTrace;
    if (!__all_sync(~0u, good)) return false;
    rows.sum[0] += sum[0];
    rows.sum[1] += sum[1];
    return true;
  }

  // Transposes 4x4 words of four neighbouring lanes: word i of lane l goes to word l of lane i.
  static __device__ void transpose_in_quad(uint32_t (&w)[4], int lane) {
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2) {
      const bool upper = (lane & distance) != 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((i & distance) != 0) continue;
        const uint32_t low = w[i], high = w[i + distance];
        const uint32_t other = __shfl_xor_sync(~0u, upper ? low : high, distance);
        w[i] = upper ? other : low;
        w[i + distance] = upper ? high : other;
      }
    }
  }

  // Stores the logsumexp of this thread's rows. `inverse` is what turns O into the output: 1 / sum,
  // 0 for a row that saw no key.
  static __device__ void store_logsumexp(const Arguments& a, const Tile& tile, int first_row,
                                         const Rows& rows, float (&inverse)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 8 * i;
      float sum = rows.sum[i];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      inverse[i] = sum == 0 ? 0 : 1 / sum;
      if (threadIdx.x % 4 == 0 && row < a.q_len) {
        a.logsumexp[(int64_t{tile.batch} * a.heads + tile.head) * a.q_len + row] =
            (rows.maximum[i] + log2f(sum)) * std::numbers::ln2_v<float>;
      }
    }
  }

  // From registers to memory, 16 bytes at a time.
  static __device__ void store_o(const Arguments& a, const Tile& tile, int first_row,
                                 const float (&o)[kOFloats], const float (&inverse)[2]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 8 * i;
      T* out = static_cast<T*>(a.o) + tile.batch * a.o_batch_stride + tile.head * a.o_head_stride +
               row * a.o_row_stride;
      // A thread has 2 of each 8 columns; after a transpose all 8 of every fourth 8.
#pragma unroll
      for (int j = 0; j < kHeadDim / 32; ++j) {
        uint32_t words[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const float* pair = o + (4 * j + w) * 4 + 2 * i;
          words[w] = ptx::cvt_rn_x2<T>(pair[0] * inverse[i], pair[1] * inverse[i]);
        }
        transpose_in_quad(words, lane);
        const int column = j * 32 + lane % 4 * 8;
        if (row < a.q_len && column < a.head_dim) {
          *reinterpret_cast<uint4*>(out + column) =
              make_uint4(words[0], words[1], words[2], words[3]);
        }
      }
    }
  }

  // Through a warp's part of shared memory, from where the copy engine takes it.
  static __device__ void stage_o(const Arguments& a, const Tile& tile, char* stage, int warp_row,
                                 const float (&o)[kOFloats], const float (&inverse)[2]) {
    if (threadIdx.x % 32 == 0) ptx::cp_async_bulk_wait_group_read_0();  // of the tile before
    __syncwarp();
    send_rows<T>(o, inverse, ptx::shared_address(stage), kOPanelBytes, a.staged_o, 0, warp_row,
                 tile.head, tile.batch);
  }

  // What a tile leaves: O / sum and the logsumexp of this warp's rows.
  static __device__ void store(const Arguments& a, Shared& shared, const Tile& tile, int consumer,
                               const float (&o)[kOFloats], const Rows& rows) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int warp_row = tile.first_query + kConsumerRows * consumer + kWarpRows * warp;
    float inverse[2];
    store_logsumexp(a, tile, warp_row + lane / 4, rows, inverse);
    if constexpr (kConfig.stage_o) {
      stage_o(a, tile, shared.o[4 * consumer + warp], warp_row, o, inverse);
    } else {
      store_o(a, tile, warp_row + lane / 4, o, inverse);
    }
    __syncwarp();
  }

  static __device__ void consume(const Arguments& a, Shared& shared, int consumer) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int row_in_tile = kConsumerRows * consumer + kWarpRows * warp + lane / 4;
    const auto release = [&](const uint64_t& empty) {
      if (lane == 0) arrive(empty);
    };
    // Named barriers by which consumers take turns.
    const int my_turn = 1 + consumer, next_turn = 1 + (consumer + 1) % kConsumers;
    constexpr int kTurnThreads = 256;
    if (kConfig.turns && consumer == 0) ptx::barrier_arrive(my_turn, kTurnThreads);

    const ptx::WgmmaMatrix q(ptx::shared_address(shared.q[consumer]), kQPanelBytes);
    const ptx::WgmmaMatrix k(ptx::shared_address(shared.k), kKvPanelBytes);
    const ptx::WgmmaMatrix v(ptx::shared_address(shared.v), kKvPanelBytes);
    constexpr int kKvBytes = kPanels * kKvPanelBytes;

    Ring k_ring, v_ring;
    TileRing tile_ring;
    uint32_t q_parity = 0;
    const auto release_q = [&]() {
      release(shared.q_empty[consumer]);
      q_parity ^= 1;
    };
    const auto release_k = [&]() {
      release(shared.k_empty[k_ring.stage]);
      k_ring.advance();
    };
    const auto release_v = [&]() {
      release(shared.v_empty[v_ring.stage]);
      v_ring.advance();
    };
    // Lets go of a block of keys of which this consumer sees none. Nothing else keeps the lane that
    // lets go from being ahead of others that still wait: by two phases, they would wait for ever.
    const auto skip_block = [&]() {
      if constexpr (kConfig.turns) {
        ptx::barrier_sync(my_turn, kTurnThreads);
        ptx::barrier_arrive(next_turn, kTurnThreads);
      }
      wait(shared.k_full[k_ring.stage], k_ring.parity);
      __syncwarp();
      release_k();
      wait(shared.v_full[v_ring.stage], v_ring.parity);
      __syncwarp();
      release_v();
    };
    int block = 0;         // of keys, of the tile at tile_ring; -1: this consumer sees none
    int first_masked = 0;  // the first block of keys that not all of its queries see whole
    // Begins the tile at tile_ring, from the last block that this consumer sees, and says if there
    // is a tile.
    const auto begin_tile = [&]() {
      wait(shared.tile_full[tile_ring.stage], tile_ring.parity);
      const Tile& tile = shared.tiles[tile_ring.stage];
      const int first_query = tile.first_query + kConsumerRows * consumer;
      block = tile.kv_blocks == kNoTile ? -1 : kv_blocks(a, first_query, kConsumerRows) - 1;
      first_masked = a.visible_keys(first_query) / kBlockKv;
      for (int i = tile.kv_blocks - 1; i > block; --i) skip_block();
      if (tile.kv_blocks > 0) wait(shared.q_full[consumer], q_parity);
      if (block >= 0) {
        wait(shared.k_full[k_ring.stage], k_ring.parity);
      } else if (tile.kv_blocks > 0) {
        __syncwarp();
        release_q();
      }
      return tile.kv_blocks != kNoTile;
    };

    float s[kSFloats], o[kOFloats];
    uint32_t p[kPSteps][4];
    bool more = begin_tile();
    // Also where no key is seen, of no use there: a product under way on one path only would have
    // the compiler wait for it on both.
    issue_qk(s, q, k.advance(k_ring.stage * kKvBytes));
    while (more) {
      Rows rows;
      bool fresh = true;  // no maximum yet to try
      // Rows behind the last query are 0, and so are their scores, of which each block would take
      // the careful way for its whole warp. An infinite maximum makes their P 0.
      const int first_row = shared.tiles[tile_ring.stage].first_query + row_in_tile;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (first_row + 8 * i >= a.q_len) rows.maximum[i] = kInfinity;
      }
#pragma unroll
      for (int i = 0; i < kOFloats; ++i) o[i] = 0;
      ptx::wgmma_wait_group<0>();
      ptx::keep_here(s);
      for (; block >= 0; --block) {
        // S is done with K, and after the first block of keys with Q.
        release_k();
        if (block == 0) release_q();

        // Asked before the exponentials, as the answer takes a while.
        const bool v_is_full = is_full(shared.v_full[v_ring.stage], v_ring.parity);
        const bool k_is_full = block > 0 && is_full(shared.k_full[k_ring.stage], k_ring.parity);

        // S becomes P.
        const bool masked = block >= first_masked;
        if (masked || fresh || !try_maximum(s, p, rows, a.scale_log2)) {
          scale(s, a.scale_log2);
          if (masked) {
            const int first_key = block * kBlockKv + lane % 4 * 2;
            mask(s, {a.visible_keys(first_row) - first_key,
                     a.visible_keys(first_row + 8) - first_key});
          }
          raise_maximum(s, rows, o);
          exponentiate<true>(s, p, {base_of(rows.maximum[0]), base_of(rows.maximum[1])}, rows.sum,
                             a.scale_log2);
        }
        fresh = false;

        if (!v_is_full) wait(shared.v_full[v_ring.stage], v_ring.parity);
        if (block > 0 && !k_is_full) wait(shared.k_full[k_ring.stage], k_ring.parity);
        if constexpr (kConfig.turns) ptx::barrier_sync(my_turn, kTurnThreads);
        issue_pv(o, p, v.advance(v_ring.stage * kKvBytes));
        if (block > 0) {
          issue_qk(s, q, k.advance(k_ring.stage * kKvBytes));
          if constexpr (kConfig.turns) ptx::barrier_arrive(next_turn, kTurnThreads);
          ptx::wgmma_wait_group<1>();
          ptx::keep_here(o);
          release_v();
          ptx::wgmma_wait_group<0>();
          ptx::keep_here(s);
        } else {
          if constexpr (kConfig.turns) ptx::barrier_arrive(next_turn, kTurnThreads);
          ptx::wgmma_wait_group<0>();
          ptx::keep_here(o);
          release_v();
        }
      }

      // O is stored beside the next tile's first product.
      const int done = tile_ring.stage;
      tile_ring.advance();
      more = begin_tile();
      issue_qk(s, q, k.advance(k_ring.stage * kKvBytes));
      store(a, shared, shared.tiles[done], consumer, o, rows);
      release(shared.tile_empty[done]);
    }
    ptx::wgmma_wait_group<0>();
    if (kConfig.stage_o && lane == 0) ptx::cp_async_bulk_wait_group_read_0();
  }

  static __device__ void run(const Arguments& a) {
    extern __shared__ __align__(1024) char shared_memory[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
    if (threadIdx.x == 0) {
      ptx::prefetch_tensormap(a.q);
      ptx::prefetch_tensormap(a.k);
      ptx::prefetch_tensormap(a.v);
      initialise_barriers(shared);
    }
    __syncthreads();
    // The same in all lanes, which the compiler does not know of threadIdx.
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
      ptx::setmaxnreg_dec<kProducerRegisters>();
      if (threadIdx.x == 0) produce_kv(a, shared);
      if (threadIdx.x == 32) produce_q(a, shared);
    } else {
      ptx::setmaxnreg_inc<kConsumerRegisters>();
      consume(a, shared, warpgroup - 1);
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kAtOnce)
    forward_kernel(const __grid_constant__ Arguments arguments) {
  Kernel::run(arguments);
}

}  // namespace flashbench::kernels::sm90
