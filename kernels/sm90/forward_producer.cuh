// The producer of the forward kernels for Hopper: one warp takes tiles and loads their K and V,
// another loads Q, both by TMA and as far ahead as shared memory has room. Where tiles are looked
// up, the fourth warp takes them, and from pages the third loads V. Of a share, the two other warps
// fetch what these load.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/forward_share_fetch.cuh"
#include "kernels/sm90/forward_share_inputs.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// Of a kernel with these shapes: ForwardShapes or E4m3Shapes.
template <typename Shapes, typename Delay>
struct ForwardProducer : Barriers<Delay> {
  using Barriers<Delay>::arrive, Barriers<Delay>::is_full, Barriers<Delay>::wait;
  using Arguments = typename Shapes::KernelArguments;
  using Shared = typename Shapes::Shared;
  using Tiles = typename Shapes::Tiles;
  using Tile = typename Shapes::Tile;
  using Ring = typename Shapes::Ring;
  using TileRing = typename Shapes::TileRing;
  static constexpr bool kByRequest = Shapes::kByRequest, kLooksUp = Shapes::kLooksUp;
  static constexpr bool kInParts = Shapes::kInParts;
  // Thread blocks begin together, and memory serves first what is asked for first: of the first
  // tile, Q of the first consumer, then K and V. The others get Q later, so that consumers begin
  // one after the other; together, they would compute exponentials while the tensor cores idle. Of
  // a share, Q may have to be fetched before.
  static constexpr int kConsumersServedFirst = Shapes::kShared ? 0 : 1;
  // The next tile is looked up when this many blocks of keys are left to load. Later, its keys
  // would not follow at once; earlier, thread blocks would finish at different times.
  static constexpr int kBlocksAhead = 4;
  static constexpr int kConsumers = Shapes::kConsumers, kBlockKv = Shapes::kBlockKv;
  static constexpr int kPanels = Shapes::kPanels, kPanelColumns = Shapes::kPanelColumns;
  static constexpr int kQPanelBytes = Shapes::kQPanelBytes, kKPanelBytes = Shapes::kKPanelBytes;

  static __device__ __forceinline__ void produce(const Arguments& a, Shared& shared) {
    if constexpr (kLooksUp) {
      switch (threadIdx.x / 32) {
        case 0:
          return produce_looked_up_kv(a, shared);
        case 1:
          return produce_q(a, shared);
        case 2:
          return produce_paged_v(a, shared);
        default:
          return look_up_tiles(a, shared);
      }
    } else {
      if (threadIdx.x < (kByRequest ? 32 : 1)) produce_kv(a, shared);
      if (threadIdx.x / 32 == 1 && (kByRequest || threadIdx.x == 32)) produce_q(a, shared);
      if constexpr (Shapes::kShared) {
        if (threadIdx.x >= 64) ShareFetch<Shapes::kHeadDim, Delay>::run(a);
      }
    }
  }

  // Takes tiles, publishes them in the ring, and loads their K and V. It takes a tile only when the
  // previous one has been loaded, so that all thread blocks finish at about the same time. By
  // request, a whole warp takes the tiles, and its first lane does the rest.
  //
  // If V is transposed, this kernel starts while the launch before it ends. This thread waits for
  // what that one makes, and all others for this one; the next launch waits for it alone, also if
  // no tile has keys.
  static __device__ void produce_kv(const Arguments& a, Shared& shared) {
    if constexpr (Shapes::kTransposedV) {
      if (!a.only_v_is_made) ptx::griddepcontrol_wait();
    }
    Ring ring;
    ShareInputs inputs;
    const unsigned tiles = Tiles::count(a);
    unsigned index = Tiles::thread_block();
    bool is_first = true;
    for (TileRing tile_ring;; tile_ring.advance(), is_first = false) {
      const Tile tile = Tiles::next_tile(a, index, tiles);
      if (is_first && tile.kv_blocks > 0) {
        load_q(a, shared, tile, 0, 0, kConsumersServedFirst, inputs);
      }
      if (!kByRequest || threadIdx.x == 0) {
        publish(shared, tile_ring, tile);
        produce_kv_of(a, shared, tile, ring, inputs);
      }
      if constexpr (kByRequest) __syncwarp();
      if (tile.kv_blocks == Tiles::kNoTile) break;
      index = Tiles::next_index(a, tiles);
    }
    if constexpr (Shapes::kTransposedV) ptx::griddepcontrol_wait();
    // The launch that merges the parts may start beside the last blocks.
    if constexpr (kInParts) ptx::griddepcontrol_launch_dependents();
  }

  // Loads K and V of the tiles that look_up_tiles publishes. From pages, all lanes load K, and
  // produce_paged_v loads V.
  static __device__ void produce_looked_up_kv(const Arguments& a, Shared& shared) {
    Ring ring;
    ShareInputs inputs;
    bool is_first = true;
    for (TileRing tile_ring;; tile_ring.advance(), is_first = false) {
      const Tile tile = published(shared, tile_ring);
      if (tile.kv_blocks == Tiles::kNoTile) break;
      if (is_first && tile.kv_blocks > 0) {
        load_q(a, shared, tile, 0, 0, kConsumersServedFirst, inputs);
      }
      if (Tiles::has_pages(a)) {
        load_paged(a, tile, {a.k, a.k_steps, shared.k, shared.k_full, shared.k_empty}, ring,
                   [&](int block) { ask_for_next(shared, tile, block); });
      } else if (threadIdx.x == 0) {
        produce_kv_of(a, shared, tile, ring, inputs);
      }
      __syncwarp();
    }
    if constexpr (kInParts) ptx::griddepcontrol_launch_dependents();
  }

  // Takes tiles, looks them up and publishes them, each when it is asked for. Called by a whole
  // warp.
  static __device__ void look_up_tiles(const Arguments& a, Shared& shared) {
    const unsigned tiles = Tiles::count(a);
    unsigned index = Tiles::thread_block();
    uint32_t parity = 0;
    for (TileRing tile_ring;; tile_ring.advance()) {
      const Tile tile = Tiles::next_tile(a, index, tiles);
      if (threadIdx.x % 32 == 0) publish(shared, tile_ring, tile);
      __syncwarp();
      if (tile.kv_blocks == Tiles::kNoTile) return;
      if (tile.first_block < tile.kv_blocks) {
        wait(shared.tile_wanted, parity);
        parity ^= 1;
      }
      index = Tiles::next_index(a, tiles);
    }
  }

  // Before a block of keys is loaded: asks for the next tile if it is time.
  static __device__ __forceinline__ void ask_for_next(Shared& shared, const Tile& tile, int block) {
    const int last = min(tile.kv_blocks, tile.first_block + kBlocksAhead) - 1;
    if (block == last && threadIdx.x == 0) arrive(shared.tile_wanted);
  }

  // Puts a tile into the ring, for the consumers and the other warps of the producer.
  static __device__ __forceinline__ void publish(Shared& shared, const TileRing& at,
                                                 const Tile& tile) {
    wait(shared.tile_empty[at.stage], at.parity ^ 1);
    shared.tiles[at.stage] = tile;
    arrive(shared.tile_full[at.stage]);
  }

  // Takes a tile out of it, for a warp of the producer.
  static __device__ __forceinline__ Tile published(Shared& shared, const TileRing& at) {
    wait(shared.tile_full[at.stage], at.parity);
    const Tile tile = shared.tiles[at.stage];
    if (kByRequest || threadIdx.x % 32 == 0) arrive(shared.tile_empty[at.stage]);
    if constexpr (kByRequest) __syncwarp();
    return tile;
  }

  static __device__ __forceinline__ void produce_kv_of(const Arguments& a, Shared& shared,
                                                       const Tile& tile, Ring& ring,
                                                       [[maybe_unused]] ShareInputs& inputs) {
    const int kv_head = tile.head / a.heads_per_kv_head;
    if constexpr (Shapes::kShared) inputs.begin_head(a, tile.batch, kv_head);
    [[maybe_unused]] RowPlace place;
    const auto k_rows = Tiles::kv_rows(a.k_steps, tile, kv_head);
    const auto v_rows = Tiles::kv_rows(a.v_steps, tile, kv_head);
    const int before = Tiles::blocks_before(tile);
    for (int block = before + tile.kv_blocks - 1; block >= before + Tiles::first_block(tile);
         --block, ring.advance()) {
      if constexpr (kLooksUp) ask_for_next(shared, tile, block);
      const CUtensorMap *k = &a.k, *v = &a.v;
      if constexpr (Shapes::kShared) {
        if (block * kBlockKv < place.from) place = inputs.locate(a, block * kBlockKv);
        if (place.in_place) {
          k = &a.all_k;
          v = &a.all_v;
        }
      }
      wait(shared.k_empty[ring.stage], ring.parity ^ 1);
      copy<kKPanelBytes>(*k, shared.k[ring.stage], shared.k_full[ring.stage], k_rows,
                         block * kBlockKv, ptx::CachePolicy::evict_last);
      wait(shared.v_empty[ring.stage], ring.parity ^ 1);
      copy_v(a, *v, shared.v[ring.stage], shared.v_full[ring.stage], v_rows, block);
    }
  }

  // K or V in pages, and its buffers.
  struct Paged {
    const CUtensorMap& map;
    const RowSteps& steps;
    char (&buffers)[Shapes::kStages][kPanels * kKPanelBytes];
    uint64_t (&full)[Shapes::kStages], (&empty)[Shapes::kStages];
  };

  static __device__ void produce_paged_v(const Arguments& a, Shared& shared) {
    if (!Tiles::has_pages(a)) return;
    Ring ring;
    for (TileRing tile_ring;; tile_ring.advance()) {
      const Tile tile = published(shared, tile_ring);
      if (tile.kv_blocks == Tiles::kNoTile) return;
      load_paged(a, tile, {a.v, a.v_steps, shared.v, shared.v_full, shared.v_empty}, ring,
                 [](int) {});
    }
  }

  // Loads K or V of a tile from pages. Called by a whole warp. Each lane loads a box of one of the
  // next blocks, as many as 32 boxes make up, and looks up its page while the blocks before are
  // loaded. Calls before_block(block) before each.
  template <typename BeforeBlock>
  static __device__ __forceinline__ void load_paged(const Arguments& a, const Tile& tile,
                                                    const Paged& keys, Ring& ring,
                                                    const BeforeBlock& before_block) {
    const int kv_head = tile.head / a.heads_per_kv_head;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int boxes = kBlockKv / a.box_rows, next_blocks = 32 / boxes;
    const int my_block = lane / boxes, row_in_block = lane % boxes * a.box_rows;
    const int* const table = a.block_table + tile.batch * a.table_stride;
    // From `row` of the page on; rows behind the first `count` are not the request's, but zeros.
    struct Box {
      int page, row, count;
    };
    const auto look_up = [&](int block) -> Box {
      const int key = block * kBlockKv + row_in_block, number = a.page_size.quotient(key);
      const bool exists = block >= tile.first_block && key < tile.kv_len;
      return {exists ? __ldg(table + number) : 0, key - number * a.page_size.divisor(),
              max(0, min(a.box_rows, tile.kv_len - key))};
    };
    int block = tile.kv_blocks - 1;
    Box next = look_up(block - my_block);
    while (block >= tile.first_block) {
      const RowsOfRequest rows(keys.steps, next.page, kv_head, next.row, next.count);
      next = look_up(block - next_blocks - my_block);
      for (int i = 0; i < next_blocks && block >= tile.first_block; ++i, --block, ring.advance()) {
        before_block(block);
        wait(keys.empty[ring.stage], ring.parity ^ 1);
        const uint32_t barrier = ptx::shared_address(&keys.full[ring.stage]);
        if (lane == 0) ptx::mbarrier_arrive_expect_tx(barrier, kPanels * kKPanelBytes);
        __syncwarp();
        if (i == my_block) {
          load_rows<kPanels, kKPanelBytes>(keys.map,
                                           keys.buffers[ring.stage] + row_in_block * kRowBytes,
                                           barrier, rows, 0, ptx::CachePolicy::evict_last);
        }
      }
    }
  }

  // Loads Q of the tiles that see a key, but for what the other warp has loaded.
  static __device__ void produce_q(const Arguments& a, Shared& shared) {
    uint32_t parity = 0;
    ShareInputs inputs;
    bool is_first = true;
    for (TileRing tile_ring;; tile_ring.advance(), is_first = false) {
      const Tile tile = published(shared, tile_ring);
      if (tile.kv_blocks == Tiles::kNoTile) return;
      if (tile.kv_blocks == 0) continue;
      load_q(a, shared, tile, parity, is_first ? kConsumersServedFirst : 0, kConsumers, inputs);
      parity ^= 1;
    }
  }

  // Loads Q of a tile for the consumers from `begin` to `end`. Prefetches it into the L2 cache if
  // shared memory has no room yet. Called by a whole warp if by request; its first lane does it,
  // but in parts.
  static __device__ __forceinline__ void load_q(const Arguments& a, Shared& shared,
                                                const Tile& tile, uint32_t parity, int begin,
                                                int end, [[maybe_unused]] ShareInputs& inputs) {
    if (begin == end) return;
    if constexpr (kInParts) {
      load_packed_q(a, shared, tile, parity, begin, end);
    } else if (threadIdx.x % 32 == 0) {
      const auto rows = Tiles::q_rows(a, tile);
      if constexpr (Shapes::kShared) {
        inputs.begin_head(a, tile.batch, tile.head / a.heads_per_kv_head);
      }
      if (!is_full(shared.q_empty[begin], parity ^ 1)) prefetch_q(a, rows, tile);
      for (int i = begin; i < end; ++i) {
        const int row = Tiles::loaded_row(tile, tile.first_query + kConsumerRows * i);
        const CUtensorMap* q = &a.q;
        if constexpr (Shapes::kShared) {
          const bool fetched = a.fetch.has_q && row >= tile.begin;
          if (!fetched || inputs.locate(a, row).in_place) q = &a.all_q;
        }
        wait(shared.q_empty[i], parity ^ 1);
        copy<kQPanelBytes>(*q, shared.q[i], shared.q_full[i], rows, row,
                           ptx::CachePolicy::evict_first);
      }
    }
  }

  // The same of rows of several heads: each lane loads a box of one.
  static __device__ __forceinline__ void load_packed_q(const Arguments& a, Shared& shared,
                                                       const Tile& tile, uint32_t parity, int begin,
                                                       int end) {
    constexpr int kLeastBoxRows = 8;
    static_assert(kConsumers * kConsumerRows / kLeastBoxRows <= 32);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (begin <= lane && lane < end) {
      wait(shared.q_empty[lane], parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&shared.q_full[lane]),
                                     kPanels * kQPanelBytes);
    }
    __syncwarp();
    const int row_in_tile = lane * a.q_box_rows;
    const int consumer = row_in_tile / kConsumerRows;
    if (consumer < begin || consumer >= end) return;
    const int row = tile.first_query + row_in_tile;
    // Rows that do not exist are zeros, as those behind the request's last query are.
    const auto [head, query] = row < Tiles::rows(a, tile.q_len)
                                   ? Tiles::packed_row(a, tile, row)
                                   : typename Tiles::PackedRow{tile.head, (tile.q_len + 7) / 8 * 8};
    load_rows<kPanels, kQPanelBytes>(
        a.q, shared.q[consumer] + row_in_tile % kConsumerRows * kRowBytes,
        ptx::shared_address(&shared.q_full[consumer]),
        RowsOfRequest(a.q_steps, tile.batch, head, tile.first_q, tile.q_len), query,
        ptx::CachePolicy::evict_last);
  }

  // Loads a block of rows of Q or K.
  template <int kPanelBytes, typename Rows>
  static __device__ void copy(const CUtensorMap& tensor, char* to, uint64_t& full, const Rows& rows,
                              int row, ptx::CachePolicy policy) {
    const uint32_t barrier = ptx::shared_address(&full);
    ptx::mbarrier_arrive_expect_tx(barrier, kPanels * kPanelBytes);
    load_rows<kPanels, kPanelBytes, kPanelColumns>(tensor, to, barrier, rows, row, policy);
  }

  // Loads a block of keys of V. If V is transposed, by the launch before, they are one box.
  template <typename Rows>
  static __device__ void copy_v(const Arguments& a, const CUtensorMap& v, char* to, uint64_t& full,
                                const Rows& rows, int block) {
    if constexpr (Shapes::kTransposedV) {
      ptx::griddepcontrol_wait();
      const uint32_t barrier = ptx::shared_address(&full);
      ptx::mbarrier_arrive_expect_tx(barrier, Shapes::kVBytes);
      RowsOfHead{block, rows.batch * a.kv_heads + rows.head}.load(
          ptx::shared_address(to), v, 0, 0, barrier, ptx::CachePolicy::evict_last);
    } else {
      copy<kKPanelBytes>(v, to, full, rows, block * kBlockKv, ptx::CachePolicy::evict_last);
    }
  }

  // Prefetches Q into the L2 cache while shared memory has no room for it; of a share, what is not
  // fetched.
  template <typename Rows>
  static __device__ void prefetch_q(const Arguments& a, const Rows& rows, const Tile& tile) {
#pragma unroll
    for (int i = 0; i < kConsumers * kPanels; ++i) {
      const int column = i % kPanels * kPanelColumns;
      const int row = Tiles::loaded_row(tile, tile.first_query + i / kPanels * kConsumerRows);
      if constexpr (Shapes::kShared) {
        if (!a.fetch.has_q || a.has_in_place(row)) rows.prefetch(a.all_q, column, row);
      } else {
        rows.prefetch(a.q, column, row);
      }
    }
  }
};

}  // namespace flashbench::kernels::sm90
