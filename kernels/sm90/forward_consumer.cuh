// A consumer of the forward kernel for Hopper: 64 queries of a tile.
#pragma once

#include <cstdint>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/forward_output.cuh"
#include "kernels/sm90/forward_shapes.cuh"
#include "kernels/sm90/forward_softmax.cuh"
#include "kernels/sm90/forward_tiles.cuh"
#include "kernels/sm90/forward_walk.cuh"
#include "kernels/sm90/merge_pair.cuh"
#include "kernels/sm90/merge_pieces.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, Config kConfig, typename Delay>
struct ForwardConsumer {
  using Shapes = ForwardShapes<kConfig>;
  using Shared = typename Shapes::Shared;
  using Tiles = ForwardTiles<kConfig>;
  using Softmax = ForwardSoftmax<T, kConfig>;
  using Rows = typename Softmax::Rows;
  static constexpr int kHeadDim = kConfig.head_dim, kBlockKv = kConfig.block_kv;
  static constexpr int kQPanelBytes = Shapes::kQPanelBytes, kKPanelBytes = Shapes::kKPanelBytes;
  static constexpr int kSFloats = Shapes::kSFloats, kOFloats = Shapes::kOFloats;
  static constexpr int kPSteps = Shapes::kPSteps;
  static constexpr int kKvBytes = Shapes::kPanels * kKPanelBytes;
  using Walk = ForwardWalk<Shapes, Delay>;

  // An operand in shared memory. Above head_dim 128 computing it once gains nothing, and spills.
  static __device__ ptx::WgmmaMatrix operand(const void* shared, int panel_bytes) {
    const ptx::WgmmaMatrix matrix(ptx::shared_address(shared), static_cast<uint32_t>(panel_bytes));
    return kHeadDim <= 128 ? matrix.computed_here() : matrix;
  }

  // Starts S = Q K^T.
  static __device__ void issue_qk(float (&s)[kSFloats], ptx::WgmmaMatrix q, ptx::WgmmaMatrix k) {
    ptx::keep_here(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      const int panel = step / 4, bytes = step % 4 * 32;
      ptx::Wgmma<kBlockKv>::template multiply_shared<T>(s, q.advance(panel * kQPanelBytes + bytes),
                                                        k.advance(panel * kKPanelBytes + bytes),
                                                        step > 0);
    }
    ptx::wgmma_commit_group();
  }

  // Starts O += P V.
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

  // Turns the S of a block into P. Calls `rescale_o` if the maxima grow that O is relative to.
  // `fresh`: there is no maximum to try yet.
  template <typename RescaleO>
  static __device__ __forceinline__ void softmax(const Arguments& a, const Walk& walk,
                                                 int first_row, bool fresh, float (&s)[kSFloats],
                                                 uint32_t (&p)[kPSteps][4], Rows& rows,
                                                 const RescaleO& rescale_o) {
    const bool masked =
        walk.block >= walk.first_masked || (Shapes::kByRequest && walk.block < walk.unmasked_from);
    if (masked || fresh || !Softmax::try_maximum(s, p, rows, a.scale_log2)) {
      Softmax::scale(s, a.scale_log2);
      if (masked) {
        const int block = walk.block + Tiles::blocks_before(walk.tile());
        Softmax::mask_block(a, walk.tile(), first_row, block, s);
      }
      Softmax::raise_maximum(s, rows, rescale_o);
      Softmax::template exponentiate<true>(
          s, p, {Softmax::base_of(rows.maximum[0]), Softmax::base_of(rows.maximum[1])}, rows.sum,
          a.scale_log2);
    }
  }

  // Goes through the blocks of a tile, whose first S is complete. P V of a block is issued together
  // with Q K^T of the next; the softmax runs beside products of the other consumers.
  static __device__ __forceinline__ void multiply(const Arguments& a, Walk& walk, int first_row,
                                                  ptx::WgmmaMatrix q, ptx::WgmmaMatrix k,
                                                  ptx::WgmmaMatrix v, float (&s)[kSFloats],
                                                  float (&o)[kOFloats], Rows& rows) {
    uint32_t p[kPSteps][4];
    bool fresh = true;
    for (; walk.block >= walk.first_seen; --walk.block) {
      walk.release_after_qk();

      // Test the barriers before the exponentials, because the answer takes a while.
      const bool v_is_full = walk.v_is_full();
      const bool k_is_full = walk.block > walk.first_seen && walk.k_is_full();
      softmax(a, walk, first_row, fresh, s, p, rows,
              [&](const auto& factor) { Softmax::rescale(o, factor); });
      fresh = false;

      if (!v_is_full) walk.wait_for_v();
      if (walk.block > walk.first_seen && !k_is_full) walk.wait_for_k();
      if constexpr (kConfig.turns) walk.await_turn();
      issue_pv(o, p, v.advance(walk.v_ring.stage * kKvBytes));
      if (walk.block > walk.first_seen) {
        issue_qk(s, q, k.advance(walk.k_ring.stage * kKvBytes));
        if constexpr (kConfig.turns) walk.pass_turn();
        ptx::wgmma_wait_group<1>();
        ptx::keep_here(o);
        walk.release_v();
        ptx::wgmma_wait_group<0>();
        ptx::keep_here(s);
      } else {
        if constexpr (kConfig.turns) walk.pass_turn();
        ptx::wgmma_wait_group<0>();
        ptx::keep_here(o);
        walk.release_v();
      }
    }
  }

  // The same, but Q K^T of the next block is issued before P V of this one, so that the softmax of
  // the next block runs beside this P V, too. That takes a second P.
  static __device__ __forceinline__ void multiply_overlapped(const Arguments& a, Walk& walk,
                                                             int first_row, ptx::WgmmaMatrix q,
                                                             ptx::WgmmaMatrix k, ptx::WgmmaMatrix v,
                                                             float (&s)[kSFloats],
                                                             float (&o)[kOFloats], Rows& rows) {
    if (walk.block < walk.first_seen) return;
    uint32_t p[kPSteps][4];
    const auto finish_pv = [&]() {
      ptx::wgmma_wait_group<0>();
      ptx::keep_here(o);
      walk.release_v();
    };
    walk.release_after_qk();
    softmax(a, walk, first_row, true, s, p, rows, [](const auto&) {});  // O is 0 so far
    while (walk.block > walk.first_seen) {
      --walk.block;
      walk.wait_for_v();
      walk.wait_for_k();
      if constexpr (kConfig.turns) walk.await_turn();
      issue_qk(s, q, k.advance(walk.k_ring.stage * kKvBytes));
      issue_pv(o, p, v.advance(walk.v_ring.stage * kKvBytes));
      if constexpr (kConfig.turns) walk.pass_turn();
      ptx::wgmma_wait_group<1>();
      ptx::keep_here(s);
      walk.release_after_qk();
      uint32_t next_p[kPSteps][4];
      bool grown = false;
      float factor[2];
      softmax(a, walk, first_row, false, s, next_p, rows, [&](const auto& by) {
        grown = true;
        factor[0] = by[0];
        factor[1] = by[1];
      });
      finish_pv();
      if (grown) Softmax::rescale(o, factor);
      ptx::copy_here(p, next_p);
    }
    walk.wait_for_v();
    if constexpr (kConfig.turns) walk.await_turn();
    issue_pv(o, p, v.advance(walk.v_ring.stage * kKvBytes));
    if constexpr (kConfig.turns) walk.pass_turn();
    finish_pv();
  }

  // Stores the results of a tile. A pair of thread blocks merges its two parts first.
  static __device__ __forceinline__ void store(const Arguments& a, Shared& shared,
                                               const typename Tiles::Tile& tile, int consumer,
                                               const float (&o)[kOFloats], const Rows& rows) {
    if constexpr (kConfig.in_pairs) {
      ptx::wgmma_wait_group<0>();
      MergePair<T, kConfig>::merge(a, shared, tile, o, rows);
    } else {
      ForwardOutput<T, kConfig>::store(a, shared, tile, consumer, o, rows);
    }
  }

  static __device__ void consume(const Arguments& a, Shared& shared, int consumer) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int row_in_tile = kConsumerRows * consumer + kWarpRows * warp + lane / 4;
    typename Shapes::Ring k_ring, v_ring;
    Walk walk(a, shared, consumer, k_ring, v_ring);
    const ptx::WgmmaMatrix q = operand(shared.q[consumer], kQPanelBytes);
    const ptx::WgmmaMatrix k = operand(shared.k, kKPanelBytes);
    const ptx::WgmmaMatrix v = operand(shared.v, kKPanelBytes);

    float s[kSFloats], o[kOFloats];
    bool more = walk.begin_tile();
    // Issued even if no key is seen, where it is useless: if a product were in flight on only one
    // path, the compiler would wait for it on both.
    issue_qk(s, q, k.advance(k_ring.stage * kKvBytes));
    while (more) {
      Rows rows;
      // Rows that do not exist are 0, and so are their scores. try_maximum would fail for them in
      // every block, and with them for their whole warp. An infinite maximum makes their P 0.
      const int first_row = walk.tile().first_query + row_in_tile;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!Tiles::exists(a, walk.tile(), first_row + 8 * i)) rows.maximum[i] = kInfinity;
      }
#pragma unroll
      for (int i = 0; i < kOFloats; ++i) o[i] = 0;
      ptx::wgmma_wait_group<0>();
      ptx::keep_here(s);
      if constexpr (kConfig.overlaps) {
        multiply_overlapped(a, walk, first_row, q, k, v, s, o, rows);
      } else {
        multiply(a, walk, first_row, q, k, v, s, o, rows);
      }
      walk.end_blocks();

      bool is_whole = true;
      if constexpr (Tiles::kHasPieces) {
        if (const int piece = walk.tile().piece; piece != PieceTile::kWhole) {
          is_whole = MergePieces<T, kConfig>::merge(a.pieces, piece, consumer, o, rows);
        }
      }
      // Store O while the first product of the next tile runs.
      const int done = walk.tile_ring.stage;
      walk.tile_ring.advance();
      more = walk.begin_tile();
      issue_qk(s, q, k.advance(k_ring.stage * kKvBytes));
      if (is_whole) store(a, shared, shared.tiles[done], consumer, o, rows);
      walk.release_tile(done);
    }
    ptx::wgmma_wait_group<0>();
    if (kConfig.stage_o && lane == 0) ptx::cp_async_bulk_wait_group_read();
  }
};

}  // namespace flashbench::kernels::sm90
