// Attention forward for Hopper (sm_90a) on e4m3 Q, K and V. The tiles, the roles of the warpgroups
// and the order of the work are those of forward.cuh. What differs:
//
// - V comes transposed (transpose_v.cuh): wgmma multiplies 8-bit elements only if their rows run
//   along K. Each 16 keys are in an order in which a thread's S, rounded, are the operand of P V as
//   they lie.
// - P is 2^kPExponent times as large as exponentials relative to the maximum, so that small ones
//   are not rounded to 0.
// - The tensor cores cut each e4m3 product off behind 13 fraction bits of the largest, so a long
//   sum drifts. If `promoted`, P V of each block of keys begins at 0 and is added to O in fp32.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/sm90/forward.cuh"

namespace flashbench::kernels::sm90 {

// The order of a consumer's products.
enum class Schedule {
  // P V is issued together with Q K^T of the next block.
  together,
  // P V comes first, and its sums are where S was, which takes the fewest registers.
  parts,
  // Q K^T of the next block runs beside the exponentials of a block, and P V beside those of the
  // next. Its sums are where S was.
  pipelined
};

struct E4m3Config {
  int head_dim;  // 64, 128 or 256
  int block_q;   // kConsumerRows for each consumer
  int stages;    // buffers for blocks of K, and as many for V, in shared memory
  bool promoted;
  Schedule schedule;

  // Keys of a block. They are a row of V in shared memory, which has the size of the swizzle.
  static constexpr int kBlockKv = kRowBytes;
  static constexpr int kPExponent = 5;

  // The tiles and accumulators are those of this kernel.
  constexpr Config of_half() const {
    return {.head_dim = head_dim,
            .block_q = block_q,
            .block_kv = kBlockKv,
            .stages = stages,
            .stage_o = true,
            .turns = false,
            .at_once = 1};
  }
};

constexpr E4m3Config e4m3_configuration(int head_dim, bool promoted) {
  // At head_dim 128 there are registers for a second sum of P V.
  return {.head_dim = head_dim,
          .block_q = head_dim == 64 ? 192 : 128,
          .stages = head_dim == 64    ? 4
                    : head_dim == 128 ? 5
                                      : 2,
          .promoted = promoted,
          .schedule = !promoted         ? Schedule::together
                      : head_dim == 128 ? Schedule::pipelined
                                        : Schedule::parts};
}

// `v` is transposed: of [batch, heads, head_dim, keys]. The factors are one a head of a request at
// most.
struct E4m3Arguments : Arguments {
  Descales q_descales, k_descales, v_descales;
};

struct E4m3Tile : Tile {
  float scale_log2;  // with the factors of Q and K
  float v_descale;
};

template <E4m3Config kConfig, typename Delay = NoDelay>
struct ForwardE4m3 : Barriers<Delay> {
  using Barriers<Delay>::arrive, Barriers<Delay>::is_full, Barriers<Delay>::wait;
  // Has the same tiles, masks and accumulators.
  using Half = Forward<__nv_bfloat16, kConfig.of_half(), Delay>;
  using Rows = typename Half::Rows;

  static constexpr int kHeadDim = kConfig.head_dim;
  static constexpr int kBlockQ = kConfig.block_q;
  static constexpr int kBlockKv = kConfig.kBlockKv;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kConsumers = Half::kConsumers;
  static constexpr int kThreads = Half::kThreads;
  static constexpr int kAtOnce = 1;
  static constexpr bool kPromoted = kConfig.promoted;
  static_assert(kHeadDim == 64 || kHeadDim % 128 == 0);

  static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
  static constexpr int kConsumerRegisters =
      (Half::kLaunchRegisters * (1 + kConsumers) - kProducerRegisters) / kConsumers / 8 * 8;

  // Q and K are in panels of 128 columns, or 64 if they have no more.
  static constexpr int kColumns = kHeadDim < 128 ? kHeadDim : 128;
  static constexpr int kPanels = kHeadDim / kColumns;
  static constexpr int kQPanelBytes = kConsumerRows * kColumns;
  static constexpr int kKPanelBytes = kBlockKv * kColumns;
  static constexpr int kVBytes = kHeadDim * kRowBytes;

  static constexpr int kSFloats = Half::kSFloats;
  static constexpr int kOFloats = Half::kOFloats;
  static constexpr int kStepKeys = 32;  // K of one wgmma
  static constexpr int kPSteps = kBlockKv / kStepKeys;

  // The largest e4m3 is 448. The maximum of a row's exponents is kOffset, or up to
  // kRescaleThreshold more if the maximum lags.
  static constexpr float kLargestP = 448;
  static constexpr float kOffset = E4m3Config::kPExponent;
  static constexpr float kRescaleThreshold = 8 - kOffset;

  struct Shared {
    alignas(1024) char q[kConsumers][kPanels * kQPanelBytes];
    alignas(1024) char k[kStages][kPanels * kKPanelBytes];
    alignas(1024) char v[kStages][kVBytes];
    alignas(1024) char o[4 * kConsumers][Half::kPanels * Half::kOPanelBytes];  // per warp
    // `full` completes when the buffer has been filled, `empty` when it may be filled again.
    uint64_t q_full[kConsumers], q_empty[kConsumers];
    uint64_t k_full[kStages], k_empty[kStages];
    uint64_t v_full[kStages], v_empty[kStages];
    uint64_t tile_full[Half::kTileSlots], tile_empty[Half::kTileSlots];
    E4m3Tile tiles[Half::kTileSlots];
  };
  using Ring = RingPosition<kStages>;
  using TileRing = typename Half::TileRing;
  using QMatrix = ptx::SwizzledMatrix<kColumns>;

  // ---- The producer

  static __device__ E4m3Tile tile_at(const E4m3Arguments& a, unsigned index, unsigned tiles) {
    if (index >= tiles) return {Half::no_tile(), 0, 0};
    const Tile tile = Half::tile_at(a, static_cast<int>(index));
    const int kv_head = tile.head / a.heads_per_kv_head;
    const auto factor = [&](const Descales& of, int head) {
      return of.data[tile.batch * of.batch_stride + head * of.head_stride];
    };
    return {tile, a.scale_log2 * factor(a.q_descales, tile.head) * factor(a.k_descales, kv_head),
            factor(a.v_descales, kv_head)};
  }

  // Takes tiles, publishes them in the ring, and loads their K and V. It takes a tile only when the
  // previous one has been loaded, so that all thread blocks finish at about the same time.
  static __device__ void produce_kv(const E4m3Arguments& a, Shared& shared) {
    Ring ring;
    const unsigned tiles = static_cast<unsigned>(a.batch_heads * a.q_blocks);
    unsigned index = blockIdx.x;
    for (TileRing tile_ring;; tile_ring.advance()) {
      const E4m3Tile tile = tile_at(a, index, tiles);
      wait(shared.tile_empty[tile_ring.stage], tile_ring.parity ^ 1);
      shared.tiles[tile_ring.stage] = tile;
      arrive(shared.tile_full[tile_ring.stage]);
      if (tile.kv_blocks == Half::kNoTile) return;
      const RowsOfHead rows{tile.head / a.heads_per_kv_head, tile.batch};
      for (int block = tile.kv_blocks - 1; block >= 0; --block, ring.advance()) {
        wait(shared.k_empty[ring.stage], ring.parity ^ 1);
        copy<kPanels, kKPanelBytes>(a.k, shared.k[ring.stage], shared.k_full[ring.stage], rows,
                                    block * kBlockKv, ptx::CachePolicy::evict_last);
        wait(shared.v_empty[ring.stage], ring.parity ^ 1);
        copy_v(a.v, shared.v[ring.stage], shared.v_full[ring.stage], rows, block * kBlockKv);
      }
      index = gridDim.x + Half::take_tile(a.last_taken, tiles);
    }
  }

  // Loads a block of rows of Q or K.
  template <int kCount, int kPanelBytes>
  static __device__ void copy(const CUtensorMap& tensor, char* to, uint64_t& full,
                              const RowsOfHead& rows, int row, ptx::CachePolicy policy) {
    const uint32_t barrier = ptx::shared_address(&full);
    ptx::mbarrier_arrive_expect_tx(barrier, kCount * kPanelBytes);
#pragma unroll
    for (int panel = 0; panel < kCount; ++panel) {
      rows.load(ptx::shared_address(to) + panel * kPanelBytes, tensor, panel * kColumns, row,
                barrier, policy);
    }
  }

  // Loads a block of keys of V.
  static __device__ void copy_v(const CUtensorMap& tensor, char* to, uint64_t& full,
                                const RowsOfHead& rows, int key) {
    const uint32_t barrier = ptx::shared_address(&full);
    ptx::mbarrier_arrive_expect_tx(barrier, kVBytes);
    rows.load(ptx::shared_address(to), tensor, key, 0, barrier, ptx::CachePolicy::evict_last);
  }

  // Loads Q of the tiles that see a key. Prefetches it into the L2 cache while shared memory has no
  // room.
  static __device__ void produce_q(const E4m3Arguments& a, Shared& shared) {
    uint32_t parity = 0;
    for (TileRing tile_ring;; tile_ring.advance()) {
      wait(shared.tile_full[tile_ring.stage], tile_ring.parity);
      const Tile tile = shared.tiles[tile_ring.stage];
      arrive(shared.tile_empty[tile_ring.stage]);
      if (tile.kv_blocks == Half::kNoTile) return;
      if (tile.kv_blocks == 0) continue;
      const RowsOfHead rows{tile.head, tile.batch};
#pragma unroll
      for (int i = 0; i < kConsumers * kPanels; ++i) {
        rows.prefetch(a.q, i % kPanels * kColumns, tile.first_query + i / kPanels * kConsumerRows);
      }
      for (int i = 0; i < kConsumers; ++i) {
        wait(shared.q_empty[i], parity ^ 1);
        copy<kPanels, kQPanelBytes>(a.q, shared.q[i], shared.q_full[i], rows,
                                    tile.first_query + kConsumerRows * i,
                                    ptx::CachePolicy::evict_first);
      }
      parity ^= 1;
    }
  }

  // ---- A consumer

  // Starts S = Q K^T.
  static __device__ void issue_qk(float (&s)[kSFloats], QMatrix q, QMatrix k) {
    ptx::keep_here(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / kStepKeys; ++step) {
      const int panel = step * kStepKeys / kColumns, bytes = step * kStepKeys % kColumns;
      ptx::Wgmma<kBlockKv>::multiply_shared_e4m3(s, q.advance(panel * kQPanelBytes + bytes),
                                                 k.advance(panel * kKPanelBytes + bytes), step > 0);
    }
    ptx::wgmma_commit_group();
  }

  // Starts D += P V, or D = P V, for the columns of V that D has.
  template <bool kAdd, int kFloats>
  static __device__ void issue_pv(float (&d)[kFloats], const uint32_t (&p)[kPSteps][4],
                                  ptx::WgmmaMatrix v) {
    ptx::keep_here(d);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kPSteps; ++step) {
      ptx::Wgmma<2 * kFloats>::multiply_registers_e4m3(d, p[step], v.advance(step * kStepKeys),
                                                       kAdd || step > 0);
    }
    ptx::wgmma_commit_group();
  }

  // O += P V in parts of as many columns as there is room for where S was.
  static __device__ void multiply_in_parts(float (&s)[kSFloats], float (&o)[kOFloats],
                                           const uint32_t (&p)[kPSteps][4], ptx::WgmmaMatrix v) {
    constexpr int kFloats = kOFloats < kSFloats ? kOFloats : kSFloats;
    auto& part = reinterpret_cast<float(&)[kFloats]>(s);
#pragma unroll
    for (int first = 0; first < kOFloats; first += kFloats) {
      issue_pv<false>(part, p, v.advance(2 * first * kRowBytes));
      ptx::wgmma_wait_group<0>();
      ptx::keep_here(part);
#pragma unroll
      for (int i = 0; i < kFloats; ++i) o[first + i] += part[i];
    }
  }

  // The keys that a thread's rows see in a block, counted from its first; a large number without a
  // mask. Element i of S is of key i / 4 * 8 + i % 2.
  using Visible = int[2];
  static __device__ bool sees(const Visible& visible, int i) {
    return i / 4 * 8 + i % 2 < visible[i / 2 % 2];
  }

  // If any maximum has grown too much, raises the maxima to those of S, in base 2, and rescales the
  // sums and O. Here and below, maxima are less by kOffset than those of S.
  template <bool kMasked>
  static __device__ void raise_maximum(const float (&s)[kSFloats], const Visible& visible,
                                       Rows& rows, float (&o)[kOFloats], float scale_log2) {
    float maximum[2];
    bool grown = false;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float m = -kInfinity;
#pragma unroll
      for (int j = 0; j < kSFloats; j += 4) {
#pragma unroll
        for (int i = j + 2 * row; i < j + 2 * row + 2; ++i) {
          if (!kMasked || sees(visible, i)) m = fmaxf(m, __fmul_rn(s[i], scale_log2));
        }
      }
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      maximum[row] = fmaxf(rows.maximum[row], m - kOffset);
      // Also true for NaN, the difference in a row that has seen no key so far.
      grown |= !(maximum[row] - rows.maximum[row] <= kRescaleThreshold);
    }
    if (!__any_sync(~0u, grown)) return;
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      factor[i] = ptx::ex2_approx_ftz(rows.maximum[i] - Half::base_of(maximum[i]));
      rows.sum[i] *= factor[i];
      rows.maximum[i] = maximum[i];
    }
#pragma unroll
    for (int i = 0; i < kOFloats; ++i) o[i] *= factor[i / 2 % 2];
  }

  // Words [kFirst, kEnd) of P = 2^(S * scale_log2 - base). Adds the row sums of P,
  // before they are rounded, to `sum`. Of each 16 keys a thread has four of a row, which are one
  // register of the A operand.
  template <bool kMasked, int kFirst = 0, int kEnd = 4 * kPSteps>
  static __device__ void exponentiate(const float (&s)[kSFloats], const Visible& visible,
                                      uint32_t (&p)[kPSteps][4], const float (&base)[2],
                                      float (&sum)[2], float scale_log2) {
#pragma unroll
    for (int i = kFirst; i < kEnd; ++i) {
      const int row = i % 2, first = i / 2 * 8 + 2 * row;
      float x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = first + j / 2 * 4 + j % 2;
        const float exponent = __fmaf_rn(s[at], scale_log2, -base[row]);
        x[j] = ptx::ex2_approx_ftz(!kMasked || sees(visible, at) ? exponent : -kInfinity);
        sum[row] += x[j];
      }
      p[i / 4][i % 4] = ptx::cvt_rn_satfinite_e4m3x4(x[0], x[1], x[2], x[3]);
    }
  }

  // Whether an element is 448, to which larger ones are rounded too, or NaN. None is negative.
  static __device__ bool is_saturated(const uint32_t (&p)[kPSteps][4]) {
    constexpr uint32_t kLargest = 0x7E, kEach = 0x01010101;
    uint32_t high_bits = 0;
#pragma unroll
    for (int i = 0; i < 4 * kPSteps; ++i) high_bits |= p[i / 4][i % 4] + (0x80 - kLargest) * kEach;
    return (high_bits & 0x80 * kEach) != 0;
  }

  // Computes P relative to the running maxima, from word kFirst on, without waiting for the block's
  // own maxima; `sum` has the row sums of the words before. Returns false and changes nothing else
  // if the maxima lag behind so far that an element of P is too large.
  template <int kFirst = 0>
  static __device__ bool try_maximum(const float (&s)[kSFloats], uint32_t (&p)[kPSteps][4],
                                     float (&sum)[2], Rows& rows, float scale_log2) {
    exponentiate<false, kFirst>(s, {}, p, rows.maximum, sum, scale_log2);
    // A small sum has no large element. Also false for a NaN sum, and for a row without a maximum.
    const bool small = sum[0] <= kLargestP && sum[1] <= kLargestP;
    if (!__all_sync(~0u, small) && __any_sync(~0u, is_saturated(p))) return false;
    rows.sum[0] += sum[0];
    rows.sum[1] += sum[1];
    return true;
  }

  // Stores the results of a tile: O and the logsumexp of this warp's rows.
  static __device__ void store(const E4m3Arguments& a, Shared& shared, const E4m3Tile& tile,
                               int consumer, const float (&o)[kOFloats], const Rows& rows) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int warp_row = tile.first_query + kConsumerRows * consumer + kWarpRows * warp;
    float factor[2];
    Half::store_logsumexp(a, tile, warp_row + lane / 4, rows, factor);
    factor[0] *= tile.v_descale;
    factor[1] *= tile.v_descale;
    Half::stage_o(a, tile, shared.o[4 * consumer + warp], warp_row, o, factor);
    __syncwarp();
  }

  static __device__ void consume(const E4m3Arguments& a, Shared& shared, int consumer) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int row_in_tile = kConsumerRows * consumer + kWarpRows * warp + lane / 4;
    const auto release = [&](const uint64_t& empty) {
      if (lane == 0) arrive(empty);
    };

    const QMatrix q(ptx::shared_address(shared.q[consumer]), kQPanelBytes);
    const QMatrix k(ptx::shared_address(shared.k), kKPanelBytes);
    const ptx::WgmmaMatrix v(ptx::shared_address(shared.v), kVBytes);
    constexpr int kKBytes = kPanels * kKPanelBytes;

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
    // Releases a block of keys of which this consumer sees none. The __syncwarp is needed because
    // nothing else keeps the releasing lane from running ahead of lanes that still wait. If it were
    // two phases ahead, they would wait for ever.
    const auto skip_block = [&]() {
      wait(shared.k_full[k_ring.stage], k_ring.parity);
      __syncwarp();
      release_k();
      wait(shared.v_full[v_ring.stage], v_ring.parity);
      __syncwarp();
      release_v();
    };
    // The current block of keys of the tile at tile_ring; negative if there is none.
    int block = 0;
    // All queries of this consumer see all keys of the blocks before `first_masked`.
    int first_masked = 0;
    // Begins the tile at tile_ring, at the last block that this consumer sees. Returns false if
    // there are no more tiles.
    const auto begin_tile = [&]() {
      wait(shared.tile_full[tile_ring.stage], tile_ring.parity);
      const E4m3Tile& tile = shared.tiles[tile_ring.stage];
      const int first_query = tile.first_query + kConsumerRows * consumer;
      block =
          tile.kv_blocks == Half::kNoTile ? -1 : Half::kv_blocks(a, first_query, kConsumerRows) - 1;
      first_masked = a.visible_keys(first_query) / kBlockKv;
      for (int i = tile.kv_blocks - 1; i > block; --i) skip_block();
      if (tile.kv_blocks > 0) wait(shared.q_full[consumer], q_parity);
      if (block >= 0) {
        wait(shared.k_full[k_ring.stage], k_ring.parity);
      } else if (tile.kv_blocks > 0) {
        __syncwarp();
        release_q();
      }
      return tile.kv_blocks != Half::kNoTile;
    };

    float s[kSFloats], o[kOFloats];
    uint32_t p[kPSteps][4];
    [[maybe_unused]] float next_s[kConfig.schedule == Schedule::pipelined ? kSFloats : 1];

    // Multiplies P of the current block by V, into where its S was, and meanwhile turns S of the
    // block before it, which is complete or will be, into P. Returns false at the first block.
    const auto finish_block = [&](float(&s)[kSFloats], float(&next)[kSFloats],
                                  const auto& raise_and_exponentiate, Rows& rows,
                                  float scale_log2) {
      auto& product = reinterpret_cast<float(&)[kOFloats]>(s);
      const auto add_product = [&]() {
        ptx::wgmma_wait_group<0>();
        ptx::keep_here(product);
#pragma unroll
        for (int i = 0; i < kOFloats; ++i) o[i] += product[i];
        release_v();
      };
      wait(shared.v_full[v_ring.stage], v_ring.parity);
      ptx::wgmma_wait_group<0>();
      ptx::keep_here(next);
      issue_pv<false>(product, p, v.advance(v_ring.stage * kVBytes));
      if (block == 0) {
        add_product();
        return false;
      }
      release_k();
      --block;
      if (block == 0) release_q();
      const bool k_is_full = block > 0 && is_full(shared.k_full[k_ring.stage], k_ring.parity);

      // As many as registers hold.
      constexpr int kEarly = kHeadDim == 64 ? 8 : 4;
      uint32_t next_p[kPSteps][4];
      float sum[2] = {0, 0};
      const bool masked = block >= first_masked;
      if (!masked) exponentiate<false, 0, kEarly>(next, {}, next_p, rows.maximum, sum, scale_log2);
      add_product();
      if (block > 0 && !k_is_full) wait(shared.k_full[k_ring.stage], k_ring.parity);
      issue_qk(s, q, k.advance(k_ring.stage * kKBytes));
#pragma unroll
      for (int i = 0; i < kEarly; ++i) p[i / 4][i % 4] = next_p[i / 4][i % 4];
      if (masked || !try_maximum<kEarly>(next, p, sum, rows, scale_log2)) {
        raise_and_exponentiate(next, masked);
      }
      return true;
    };

    bool more = begin_tile();
    // Issued even if no key is seen, where it is useless: if a product were in flight on only one
    // path, the compiler would wait for it on both.
    issue_qk(s, q, k.advance(k_ring.stage * kKBytes));
    while (more) {
      Rows rows;
      bool fresh = true;  // there is no maximum to try yet
      // Rows past the last query are 0, and so are their scores. try_maximum would fail for them in
      // every block, and with them for their whole warp. An infinite maximum makes their P 0.
      const int first_row = shared.tiles[tile_ring.stage].first_query + row_in_tile;
      const float scale_log2 = shared.tiles[tile_ring.stage].scale_log2;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (first_row + 8 * i >= a.q_len) rows.maximum[i] = kInfinity;
      }
#pragma unroll
      for (int i = 0; i < kOFloats; ++i) o[i] = 0;
      ptx::wgmma_wait_group<0>();
      ptx::keep_here(s);
      // Turns S of the current block into P, if need be with a new maximum.
      const auto raise_and_exponentiate = [&](const float(&of)[kSFloats], bool masked) {
        const auto with_mask = [&]<bool kMasked>(const Visible& visible) {
          raise_maximum<kMasked>(of, visible, rows, o, scale_log2);
          const float base[2] = {Half::base_of(rows.maximum[0]), Half::base_of(rows.maximum[1])};
          exponentiate<kMasked>(of, visible, p, base, rows.sum, scale_log2);
        };
        if (masked) {
          const int first = block * kBlockKv + lane % 4 * 2;
          with_mask.template operator()<true>(
              {a.visible_keys(first_row) - first, a.visible_keys(first_row + 8) - first});
        } else {
          with_mask.template operator()<false>({});
        }
      };
      if constexpr (kConfig.schedule == Schedule::pipelined) {
        if (block >= 0) {
          release_k();
          if (block == 0) release_q();
          // Useless if there is no next block, as above.
          if (block > 0) wait(shared.k_full[k_ring.stage], k_ring.parity);
          issue_qk(next_s, q, k.advance(k_ring.stage * kKBytes));
          raise_and_exponentiate(s, block >= first_masked);
          while (finish_block(s, next_s, raise_and_exponentiate, rows, scale_log2) &&
                 finish_block(next_s, s, raise_and_exponentiate, rows, scale_log2)) {
          }
        }
      } else {
        for (; block >= 0; --block) {
          // S is complete, so K is free, and after the last block Q is free too.
          release_k();
          if (block == 0) release_q();

          // Test the barriers before the exponentials, because the answer takes a while.
          const bool v_is_full = is_full(shared.v_full[v_ring.stage], v_ring.parity);
          const bool k_is_full = kConfig.schedule == Schedule::together && block > 0 &&
                                 is_full(shared.k_full[k_ring.stage], k_ring.parity);

          // Turn S into P.
          const bool masked = block >= first_masked;
          float sum[2] = {0, 0};
          if (masked || fresh || !try_maximum(s, p, sum, rows, scale_log2)) {
            raise_and_exponentiate(s, masked);
          }
          fresh = false;

          if (!v_is_full) wait(shared.v_full[v_ring.stage], v_ring.parity);
          const ptx::WgmmaMatrix v_block = v.advance(v_ring.stage * kVBytes);
          if constexpr (kConfig.schedule == Schedule::together) {
            if (block > 0 && !k_is_full) wait(shared.k_full[k_ring.stage], k_ring.parity);
            issue_pv<true>(o, p, v_block);
            const auto finish_pv = [&]() {
              ptx::keep_here(o);
              release_v();
            };
            if (block > 0) {
              issue_qk(s, q, k.advance(k_ring.stage * kKBytes));
              ptx::wgmma_wait_group<1>();
              finish_pv();
              ptx::wgmma_wait_group<0>();
              ptx::keep_here(s);
            } else {
              ptx::wgmma_wait_group<0>();
              finish_pv();
            }
          } else {
            multiply_in_parts(s, o, p, v_block);
            release_v();
            if (block > 0) {
              wait(shared.k_full[k_ring.stage], k_ring.parity);
              issue_qk(s, q, k.advance(k_ring.stage * kKBytes));
              ptx::wgmma_wait_group<0>();
              ptx::keep_here(s);
            }
          }
        }
      }

      // Store O while the first product of the next tile runs.
      const int done = tile_ring.stage;
      tile_ring.advance();
      more = begin_tile();
      issue_qk(s, q, k.advance(k_ring.stage * kKBytes));
      store(a, shared, shared.tiles[done], consumer, o, rows);
      release(shared.tile_empty[done]);
    }
    ptx::wgmma_wait_group<0>();
    if (lane == 0) ptx::cp_async_bulk_wait_group_read_0();
  }

  static __device__ void run(const E4m3Arguments& a) {
    extern __shared__ __align__(1024) char shared_memory[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
    if (threadIdx.x == 0) {
      ptx::prefetch_tensormap(a.q);
      ptx::prefetch_tensormap(a.k);
      ptx::prefetch_tensormap(a.v);
      Half::initialise_barriers(shared);
    }
    __syncthreads();
    // The shuffle tells the compiler that the value is the same in all lanes.
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
    forward_e4m3_kernel(const __grid_constant__ E4m3Arguments arguments) {
  Kernel::run(arguments);
}

}  // namespace flashbench::kernels::sm90
