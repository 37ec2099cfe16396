// Attention forward for Hopper (sm_90a) on e4m3 Q, K and V. The tiles, the roles of the warpgroups
// and the order of the work are those of forward.cuh, whose parts it shares. What differs:
//
// - V comes transposed (transpose_v.cuh): wgmma multiplies 8-bit elements only if their rows run
//   along K. Each 16 keys are in an order in which a thread's S, rounded, are the operand of P V as
//   they lie.
// - P is 2^kPExponent times as large as exponentials relative to the maximum, so that small ones
//   are not rounded to 0.
// - The tensor cores cut each e4m3 product off behind 13 fraction bits of the largest, so a long
//   sum drifts. If `promoted`, P V of each block of keys begins at 0 and is added to O in fp32.
// - Tiles that are too few for a GPU are in pieces with a mask, too.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/tid.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/forward_output.cuh"
#include "kernels/sm90/forward_producer.cuh"
#include "kernels/sm90/forward_shapes.cuh"
#include "kernels/sm90/forward_softmax.cuh"
#include "kernels/sm90/forward_tiles.cuh"
#include "kernels/sm90/forward_walk.cuh"
#include "kernels/sm90/merge_pieces.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// The order of a consumer's products.
enum class Schedule {
  // P V is issued together with Q K^T of the next block.
  together,
  // P V comes first, and its sums are where S was, which takes the fewest registers.
  parts
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
            .at_once = 1,
            .first_lacks_rows = true,
            .has_pieces = true};
  }
};

constexpr E4m3Config e4m3_configuration(int head_dim, bool promoted) {
  // Three consumers where registers hold the accumulators.
  const bool three = head_dim == 64 || (head_dim == 128 && promoted);
  return {.head_dim = head_dim,
          .block_q = three ? 192 : 128,
          .stages = three             ? 4
                    : head_dim == 128 ? 5
                                      : 2,
          .promoted = promoted,
          .schedule = promoted ? Schedule::parts : Schedule::together};
}

// `v` is transposed (TransposeArguments::to): of [batch * heads, key_blocks, columns, keys]. The
// factors are one a head of a request at most.
struct E4m3Arguments : Arguments {
  Descales q_descales, k_descales, v_descales;
  int kv_heads;
  // Of the inputs, the launch before makes transposed V alone. Else it makes all, and the factors.
  bool only_v_is_made;
};

struct E4m3Tile : PieceTile {
  float scale_log2;  // with the factors of Q and K
  float v_descale;
};

// Tiles come with their factors.
template <E4m3Config kConfig>
struct E4m3Tiles : ForwardTiles<kConfig.of_half()> {
  using Tiles = ForwardTiles<kConfig.of_half()>;
  using Tile = E4m3Tile;

  static __device__ E4m3Tile next_tile(const E4m3Arguments& a, unsigned index, unsigned tiles) {
    const PieceTile tile = Tiles::next_tile(a, index, tiles);
    if (tile.kv_blocks == Tiles::kNoTile) return {tile, 0, 0};
    const int kv_head = tile.head / a.heads_per_kv_head;
    const auto factor = [&](const Descales& of, int head) {
      return of.data[tile.batch * of.batch_stride + head * of.head_stride];
    };
    return {tile, a.scale_log2 * factor(a.q_descales, tile.head) * factor(a.k_descales, kv_head),
            factor(a.v_descales, kv_head)};
  }
};

// What differs from the kernel on 16 bits.
template <E4m3Config kConfig>
struct E4m3Shapes : ForwardShapes<kConfig.of_half()> {
  using Half = ForwardShapes<kConfig.of_half()>;
  using Half::kBlockKv, Half::kConsumers, Half::kHeadDim, Half::kStages, Half::kTileSlots;
  static_assert(kHeadDim == 64 || kHeadDim % 128 == 0);
  using KernelArguments = E4m3Arguments;
  using Tiles = E4m3Tiles<kConfig>;
  using Tile = E4m3Tile;
  static constexpr bool kFirstSeenVaries = false;

  static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
  static constexpr int kConsumerRegisters =
      (Half::kLaunchRegisters * (1 + kConsumers) - kProducerRegisters) / kConsumers / 8 * 8;

  // Q and K are in panels of 128 columns, or 64 if they have no more.
  static constexpr int kPanelColumns = kHeadDim < 128 ? kHeadDim : 128;
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr int kQPanelBytes = kConsumerRows * kPanelColumns;
  static constexpr int kKPanelBytes = kBlockKv * kPanelColumns;
  static constexpr bool kTransposedV = true;
  static constexpr int kVBytes = kHeadDim * kRowBytes;

  static constexpr int kStepKeys = 32;  // K of one wgmma
  static constexpr int kPSteps = kBlockKv / kStepKeys;

  struct Shared {
    alignas(1024) char q[kConsumers][kPanels * kQPanelBytes];
    alignas(1024) char k[kStages][kPanels * kKPanelBytes];
    alignas(1024) char v[kStages][kVBytes];
    alignas(1024) char o[4 * kConsumers][Half::kPanels * Half::kOPanelBytes];  // per warp
    // `full` completes when the buffer has been filled, `empty` when it may be filled again.
    uint64_t q_full[kConsumers], q_empty[kConsumers];
    uint64_t k_full[kStages], k_empty[kStages];
    uint64_t v_full[kStages], v_empty[kStages];
    uint64_t tile_full[kTileSlots], tile_empty[kTileSlots];
    E4m3Tile tiles[kTileSlots];
  };
};

template <E4m3Config kConfig, typename Delay = NoDelay>
struct ForwardE4m3 : E4m3Shapes<kConfig> {
  using Shapes = E4m3Shapes<kConfig>;
  using Shapes::kBlockKv, Shapes::kHeadDim, Shapes::kKPanelBytes, Shapes::kOFloats,
      Shapes::kPanelColumns, Shapes::kPSteps, Shapes::kQPanelBytes, Shapes::kSFloats,
      Shapes::kStepKeys, Shapes::kVBytes;
  using typename Shapes::Shared;
  using Softmax = ForwardSoftmax<__nv_bfloat16, kConfig.of_half()>;
  using Output = ForwardOutput<__nv_bfloat16, kConfig.of_half()>;
  using Merge = MergePieces<__nv_bfloat16, kConfig.of_half()>;
  using Tiles = typename Shapes::Tiles;
  using Rows = typename Softmax::Rows;
  using QMatrix = ptx::SwizzledMatrix<kPanelColumns>;

  // The largest e4m3 is 448. The maximum of a row's exponents is kOffset, or up to
  // kRescaleThreshold more if the maximum lags.
  static constexpr float kLargestP = 448;
  static constexpr float kOffset = E4m3Config::kPExponent;
  static constexpr float kRescaleThreshold = 8 - kOffset;

  static __device__ __forceinline__ void produce(const E4m3Arguments& a, Shared& shared) {
    ForwardProducer<Shapes, Delay>::produce(a, shared);
  }

  // Starts S = Q K^T.
  static __device__ void issue_qk(float (&s)[kSFloats], QMatrix q, QMatrix k) {
    ptx::keep_here(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / kStepKeys; ++step) {
      const int panel = step * kStepKeys / kPanelColumns, bytes = step * kStepKeys % kPanelColumns;
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
      factor[i] = ptx::ex2_approx_ftz(rows.maximum[i] - Softmax::base_of(maximum[i]));
      rows.sum[i] *= factor[i];
      rows.maximum[i] = maximum[i];
    }
#pragma unroll
    for (int i = 0; i < kOFloats; ++i) o[i] *= factor[i / 2 % 2];
  }

  // P = 2^(S * scale_log2 - base). Adds the row sums of P, before they are rounded, to `sum`. Of
  // each 16 keys a thread has four of a row, which are one register of the A operand.
  template <bool kMasked>
  static __device__ void exponentiate(const float (&s)[kSFloats], const Visible& visible,
                                      uint32_t (&p)[kPSteps][4], const float (&base)[2],
                                      float (&sum)[2], float scale_log2) {
#pragma unroll
    for (int i = 0; i < 4 * kPSteps; ++i) {
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

  // Computes P relative to the running maxima, without waiting for the block's own maxima. Returns
  // false and changes nothing else if the maxima lag behind so far that an element of P is too
  // large.
  static __device__ bool try_maximum(const float (&s)[kSFloats], uint32_t (&p)[kPSteps][4],
                                     Rows& rows, float scale_log2) {
    float sum[2] = {0, 0};
    exponentiate<false>(s, {}, p, rows.maximum, sum, scale_log2);
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
    // Read again, because registers have no room for what follows from it.
    const int thread = ptx::tid_x(), lane = thread % 32, warp = thread / 32 % 4;
    const int warp_row = tile.first_query + kConsumerRows * consumer + kWarpRows * warp;
    float factor[2];
    Output::store_logsumexp(a, tile, warp_row + lane / 4, rows, factor);
    factor[0] *= tile.v_descale;
    factor[1] *= tile.v_descale;
    if (lane == 0) ptx::cp_async_bulk_wait_group_read();  // of the previous tile
    __syncwarp();
    send_rows<__nv_bfloat16>(o, factor, ptx::shared_address(shared.o[4 * consumer + warp]),
                             Shapes::kOPanelBytes, a.staged_o, Tiles::o_rows(a, tile), warp_row,
                             thread);
    __syncwarp();
  }

  static __device__ void consume(const E4m3Arguments& a, Shared& shared, int consumer) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    typename Shapes::Ring k_ring, v_ring;
    ForwardWalk<Shapes, Delay> walk(a, shared, consumer, k_ring, v_ring);
    const QMatrix q(ptx::shared_address(shared.q[consumer]), kQPanelBytes);
    const QMatrix k(ptx::shared_address(shared.k), kKPanelBytes);
    const ptx::WgmmaMatrix v(ptx::shared_address(shared.v), kVBytes);
    constexpr int kKBytes = Shapes::kPanels * kKPanelBytes;

    float s[kSFloats], o[kOFloats];
    uint32_t p[kPSteps][4];
    bool more = walk.begin_tile();
    // Issued even if no key is seen, where it is useless: if a product were in flight on only one
    // path, the compiler would wait for it on both.
    issue_qk(s, q, k.advance(k_ring.stage * kKBytes));
    while (more) {
      Rows rows;
      bool fresh = true;  // there is no maximum to try yet
      // Rows that do not exist are 0, and so are their scores. try_maximum would fail for them in
      // every block, and with them for their whole warp. An infinite maximum makes their P 0.
      const int thread = ptx::tid_x();
      const int first_row = walk.tile().first_query + kConsumerRows * consumer +
                            thread / 32 % 4 * kWarpRows + thread % 32 / 4;
      const float scale_log2 = walk.tile().scale_log2;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!Tiles::exists(a, walk.tile(), first_row + 8 * i)) rows.maximum[i] = kInfinity;
      }
#pragma unroll
      for (int i = 0; i < kOFloats; ++i) o[i] = 0;
      ptx::wgmma_wait_group<0>();
      ptx::keep_here(s);
      // Turns S of the current block into P, if need be with a new maximum.
      const auto raise_and_exponentiate = [&](bool masked) {
        const auto with_mask = [&]<bool kMasked>(const Visible& visible) {
          raise_maximum<kMasked>(s, visible, rows, o, scale_log2);
          const float base[2] = {Softmax::base_of(rows.maximum[0]),
                                 Softmax::base_of(rows.maximum[1])};
          exponentiate<kMasked>(s, visible, p, base, rows.sum, scale_log2);
        };
        if (masked) {
          const int block = walk.block + Tiles::blocks_before(walk.tile());
          const int first = block * kBlockKv + lane % 4 * 2;
          with_mask.template operator()<true>(
              {a.visible_keys(first_row) - first, a.visible_keys(first_row + 8) - first});
        } else {
          with_mask.template operator()<false>({});
        }
      };
      for (; walk.block >= 0; --walk.block) {
        walk.release_after_qk();

        // Test the barriers before the exponentials, because the answer takes a while.
        const bool v_is_full = walk.v_is_full();
        const bool k_is_full =
            kConfig.schedule == Schedule::together && walk.block > 0 && walk.k_is_full();

        // Turn S into P.
        const bool masked = walk.block >= walk.first_masked;
        if (masked || fresh || !try_maximum(s, p, rows, scale_log2)) {
          raise_and_exponentiate(masked);
        }
        fresh = false;

        if (!v_is_full) walk.wait_for_v();
        const ptx::WgmmaMatrix v_block = v.advance(v_ring.stage * kVBytes);
        if constexpr (kConfig.schedule == Schedule::together) {
          if (walk.block > 0 && !k_is_full) walk.wait_for_k();
          issue_pv<true>(o, p, v_block);
          const auto finish_pv = [&]() {
            ptx::keep_here(o);
            walk.release_v();
          };
          if (walk.block > 0) {
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
          walk.release_v();
          if (walk.block > 0) {
            walk.wait_for_k();
            issue_qk(s, q, k.advance(k_ring.stage * kKBytes));
            ptx::wgmma_wait_group<0>();
            ptx::keep_here(s);
          }
        }
      }

      const int done = walk.tile_ring.stage;
      bool is_whole = true;
      if (const int piece = walk.tile().piece; piece != PieceTile::kWhole) {
        is_whole = Merge::merge(a.pieces, piece, consumer, o, rows);
      }
      // Store O while the first product of the next tile runs.
      walk.tile_ring.advance();
      more = walk.begin_tile();
      issue_qk(s, q, k.advance(k_ring.stage * kKBytes));
      if (is_whole) store(a, shared, shared.tiles[done], consumer, o, rows);
      walk.release_tile(done);
    }
    ptx::wgmma_wait_group<0>();
    if (lane == 0) ptx::cp_async_bulk_wait_group_read();
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kAtOnce)
    forward_e4m3_kernel(const __grid_constant__ E4m3Arguments arguments) {
  run_forward<Kernel>(arguments);
}

}  // namespace flashbench::kernels::sm90
