// A consumer's way through the tiles of a forward kernel for Hopper and their blocks of keys: where
// it is, and the buffers that it waits for and releases.
#pragma once

#include <cstdint>

#include "kernels/ptx/barrier.h"
#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// In a kernel with these shapes: ForwardShapes or E4m3Shapes.
template <typename Shapes, typename Delay>
struct ForwardWalk : Barriers<Delay> {
  using Barriers<Delay>::is_full, Barriers<Delay>::wait;
  using Arguments = typename Shapes::KernelArguments;
  using Shared = typename Shapes::Shared;
  using Tiles = typename Shapes::Tiles;
  using Tile = typename Shapes::Tile;
  static constexpr int kBlockKv = Shapes::kBlockKv;
  static constexpr int kTurnThreads = 256;

  const Arguments& a;
  Shared& shared;
  const int consumer, lane;
  const int my_turn, next_turn;  // named barriers
  // The caller's. As members the compiler would keep them in other registers.
  typename Shapes::Ring &v_ring, &k_ring;
  typename Shapes::TileRing tile_ring;
  uint32_t q_parity = 0;
  // Of the tile at tile_ring: the current block of keys, and the first that this consumer sees.
  // There is none if the current one lies before the first.
  int block = 0, first_seen = 0;
  // All of its queries see all keys of the blocks from `unmasked_from` to `first_masked`, less 1.
  int unmasked_from = 0, first_masked = 0;

  __device__ ForwardWalk(const Arguments& a_, Shared& shared_, int consumer_,
                         typename Shapes::Ring& k_ring_, typename Shapes::Ring& v_ring_)
      : a(a_),
        shared(shared_),
        consumer(consumer_),
        lane(static_cast<int>(threadIdx.x) % 32),
        my_turn(1 + consumer),
        next_turn(1 + (consumer + 1) % Shapes::kConsumers),
        v_ring(v_ring_),
        k_ring(k_ring_) {
    if (Shapes::kTurns && consumer == 0) ptx::barrier_arrive(my_turn, kTurnThreads);
  }

  __device__ const Tile& tile() const { return shared.tiles[tile_ring.stage]; }

  // Begins the tile at tile_ring, at the last block that this consumer sees. Returns false if there
  // are no more tiles.
  __device__ bool begin_tile() {
    wait(shared.tile_full[tile_ring.stage], tile_ring.parity);
    const Tile& tile = shared.tiles[tile_ring.stage];
    const int first_query = tile.first_query + kConsumerRows * consumer;
    if constexpr (Shapes::kByRequest) {
      const auto seen = Tiles::seen_blocks(a, tile, first_query, kConsumerRows);
      first_seen = max(seen.first, tile.first_block);
      block = max(seen.end, tile.first_block) - 1;
      if constexpr (Shapes::kInParts) {
        first_seen = min(first_seen, tile.kv_blocks);
        block = min(block, tile.kv_blocks - 1);
      }
      const auto queries = Tiles::queries(a, tile, first_query, kConsumerRows);
      first_masked = Tiles::end_key(tile, queries.first) / kBlockKv;
      const int last_query = min(queries.first + queries.count, tile.q_len) - 1;
      unmasked_from = (Tiles::first_key(tile, last_query) + kBlockKv - 1) / kBlockKv;
    } else {
      block = tile.kv_blocks == Tiles::kNoTile
                  ? -1
                  : Tiles::kv_blocks(a, tile, first_query, kConsumerRows) - 1;
      first_masked = a.visible_keys(first_query) / kBlockKv;
      if constexpr (Tiles::kHasPieces) {
        const int before = Tiles::blocks_before(tile);
        block = max(-1, min(block - before, tile.kv_blocks - 1));
        first_masked -= before;
      }
    }
    for (int i = tile.kv_blocks - 1; i > block; --i) skip_block();
    if (tile.kv_blocks > 0) wait(shared.q_full[consumer], q_parity);
    if (block >= (Shapes::kFirstSeenVaries ? first_seen : 0)) {
      wait_for_k();
    } else if (tile.kv_blocks > 0) {
      __syncwarp();
      release_q();
    }
    return tile.kv_blocks != Tiles::kNoTile;
  }

  // Ends the walk over the blocks of a tile, of which this consumer may not see the first.
  __device__ void end_blocks() {
    if constexpr (Shapes::kByRequest) {
      for (int i = first_seen; i > tile().first_block; --i) skip_block();
    }
  }

  // Releases a block of keys of which this consumer sees none. The __syncwarp is needed because
  // nothing else keeps the releasing lane from running ahead of lanes that still wait. If it were
  // two phases ahead, they would wait for ever.
  __device__ void skip_block() {
    if constexpr (Shapes::kTurns) {
      await_turn();
      pass_turn();
    }
    wait_for_k();
    __syncwarp();
    release_k();
    wait_for_v();
    __syncwarp();
    release_v();
  }

  __device__ bool k_is_full() const { return is_full(shared.k_full[k_ring.stage], k_ring.parity); }
  __device__ bool v_is_full() const { return is_full(shared.v_full[v_ring.stage], v_ring.parity); }
  __device__ void wait_for_k() const { wait(shared.k_full[k_ring.stage], k_ring.parity); }
  __device__ void wait_for_v() const { wait(shared.v_full[v_ring.stage], v_ring.parity); }

  __device__ void release(const uint64_t& empty) const { Barriers<Delay>::release(lane, empty); }
  // When the results of the tile in this place of the ring are stored.
  __device__ void release_tile(int stage) const {
    if constexpr (Shapes::kTileArrivals > 1) {
      Barriers<Delay>::arrive(shared.tile_empty[stage]);
    } else {
      release(shared.tile_empty[stage]);
    }
  }
  __device__ void release_q() {
    release(shared.q_empty[consumer]);
    q_parity ^= 1;
  }
  __device__ void release_k() {
    release(shared.k_empty[k_ring.stage]);
    k_ring.advance();
  }
  // When S of the current block is complete: K is free, and after the last block Q is, too.
  __device__ void release_after_qk() {
    release_k();
    if (block == (Shapes::kFirstSeenVaries ? first_seen : 0)) release_q();
  }
  __device__ void release_v() {
    release(shared.v_empty[v_ring.stage]);
    v_ring.advance();
  }

  // The consumers can take turns.
  __device__ void await_turn() const { ptx::barrier_sync(my_turn, kTurnThreads); }
  __device__ void pass_turn() const { ptx::barrier_arrive(next_turn, kTurnThreads); }
};

}  // namespace flashbench::kernels::sm90
