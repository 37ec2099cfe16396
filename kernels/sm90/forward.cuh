// Attention forward for Hopper (sm_90a). A thread block computes one tile (a block of queries of
// one head) at a time and loops over the blocks of keys, from the last one that it sees to the
// first. Its warpgroups are specialised. In the producer, one warp loads K and V into shared memory
// by TMA and another loads Q, both as far ahead as there is room. Each consumer owns 64 queries,
// multiplies with wgmma and keeps S, P and O in registers.
//
// A consumer issues P V of one block of keys together with Q K^T of the next, and then computes the
// softmax while the products of the other consumers run. It stores the O of a tile while the first
// product of the next tile runs.
//
// The variant `by_request` serves requests of different lengths, windows, and K and V in pages. Its
// producer finds the request of a tile from cu_seqlens, and a tile has the lengths of its request.
// TMA reads rows behind a request's end as zeros, whoever's they are, and leaves them out of O.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

#include "kernels/common/divisor.cuh"
#include "kernels/common/requests.cuh"
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

// The running maximum in the exponents may lag behind the true maximum as long as a thread's sum of
// P over a block of keys is at most kLargestSum; P is then far below the largest fp16. If the sum
// is larger, the block's own maximum is computed; O and the sums are rescaled only if it exceeds
// the running maximum by more than kRescaleThreshold (a power of two). If the next block is
// similar, its sum is then small enough.
inline constexpr float kLargestSum = 256;
inline constexpr float kRescaleThreshold = 3;

struct Config {
  int head_dim;  // multiple of 32
  int block_q;   // kConsumerRows for each consumer
  int block_kv;  // multiple of 16
  int stages;    // buffers for blocks of K, and as many for V, in shared memory
  bool stage_o;  // O goes through shared memory of its own
  bool turns;    // consumers issue their products in turn
  int at_once;   // thread blocks per multiprocessor

  // For requests of different lengths, windows and pages.
  bool by_request = false;
  // Whether the first block of queries of a head may lack rows; see missing_rows().
  bool first_lacks_rows = false;
};

constexpr Config configuration(int head_dim, int block_q, int block_kv, int stages,
                               bool by_request = false) {
  // At head_dim 256 shared memory has no room for O, and turns are 2% faster; at other sizes they
  // are slower.
  const bool large = head_dim > 192;
  return {.head_dim = head_dim,
          .block_q = block_q,
          .block_kv = block_kv,
          .stages = stages,
          .stage_o = !large,
          .turns = large,
          .at_once = thread_blocks_at_once(head_dim, block_q),
          .by_request = by_request,
          .first_lacks_rows = !by_request};
}

struct Arguments {
  CUtensorMap q, k, v, staged_o;  // of [batch, heads, rows, head_dim]
  void* o;
  float* logsumexp;
  int64_t o_batch_stride, o_head_stride, o_row_stride;  // in elements
  int heads, heads_per_kv_head, q_len, kv_len, head_dim;
  int diagonal;      // query i sees keys 0 to i + diagonal
  int missing_rows;  // the first block of queries of a head begins with query -missing_rows
  int q_blocks, batch_heads, section_heads;
  unsigned* last_taken;  // see take_tile; starts at UINT_MAX
  float scale_log2;      // takes Q K^T to the softmax's exponents in base 2

  // Only if by request, when the maps are those of request_map(), q_blocks counts slots (see
  // requests.cuh), and q_len and kv_len are those of the longest.
  RowSteps q_steps, k_steps, v_steps, o_steps;
  const int *cu_seqlens_q, *cu_seqlens_k;  // null: equal lengths
  int64_t logsumexp_batch_stride, logsumexp_head_stride;
  int requests;
  bool packed;      // rows of Q, K, V, O and the logsumexp count through all requests
  bool top_left;    // a query's own key has its number; else the last query's is the last key
  int left, right;  // keys that a query sees before and after its own

  // Where pages hold the keys: page `number` of request b is block_table[b * table_stride + number]
  // of the pool, in whose maps pages stand for requests. Else null.
  const int* block_table;
  int64_t table_stride;
  int page_rows, box_rows;  // a box is as many rows of a block of keys as are in one page
  Divisor page_size{1};

  // The number of keys that a query sees, if positive; else it sees none.
  __device__ int visible_keys(int query) const { return min(kv_len, query + diagonal + 1); }
};

// TMA stores no box that begins before the tensor. All rows of such a one are missing.
struct StoredRowsOfHead : RowsOfHead {
  __device__ __forceinline__ void store(const CUtensorMap& map, int column, int row,
                                        uint32_t from) const {
    if (row >= 0) RowsOfHead::store(map, column, row, from);
  }
};

// A block of queries of one head, and the number of the block of keys behind the last that it sees.
// Queries below 0 and from q_len on do not exist.
struct alignas(16) Tile {
  int batch, head, first_query, kv_blocks;
};

// The same of a request, of which it says all that the roles need. The keys of the request are
// those that any of its queries sees.
struct RequestTile : Tile {
  int first_block;  // of keys that it sees
  int q_len, kv_len;
  int first_from, end_from;  // query i sees keys max(0, i + first_from) to i + end_from
  int first_q, first_k;      // of the request, among the rows of the tensors
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
  static constexpr bool kByRequest = kConfig.by_request;
  using Tile = std::conditional_t<kByRequest, RequestTile, sm90::Tile>;
  static constexpr int kAtOnce = kConfig.at_once;

  // Registers per thread. The registers of a multiprocessor are divided among its thread blocks, in
  // multiples of 8 per thread.
  static constexpr int kLaunchRegisters = 65536 / (kThreads * kAtOnce) / 8 * 8;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters =
      (kLaunchRegisters * (1 + kConsumers) - kProducerRegisters) / kConsumers / 8 * 8;
  static_assert(kConsumerRegisters <= 255);
  static_assert(!kConfig.turns || kConsumers == 2);

  static constexpr int kPanels = (kHeadDim + 63) / 64;
  static constexpr int kQPanelBytes = kConsumerRows * kRowBytes;
  static constexpr int kKvPanelBytes = kBlockKv * kRowBytes;
  static constexpr int kOPanelBytes = kWarpRows * kRowBytes;  // per warp

  static constexpr int kSFloats = kBlockKv / 2;  // registers per thread for 64 rows
  static constexpr int kOFloats = kHeadDim / 2;
  static constexpr int kPSteps = kBlockKv / 16;

  // The number of tiles in the ring, including the one that the consumers work on.
  static constexpr int kTileSlots = 4;

  struct Shared {
    alignas(1024) char q[kConsumers][kPanels * kQPanelBytes];
    alignas(1024) char k[kStages][kPanels * kKvPanelBytes];
    alignas(1024) char v[kStages][kPanels * kKvPanelBytes];
    alignas(1024) char o[kConfig.stage_o ? 4 * kConsumers : 0][kPanels * kOPanelBytes];  // per warp
    // `full` completes when the buffer has been filled, `empty` when it may be filled again.
    uint64_t q_full[kConsumers], q_empty[kConsumers];
    uint64_t k_full[kStages], k_empty[kStages];
    uint64_t v_full[kStages], v_empty[kStages];
    uint64_t tile_full[kTileSlots], tile_empty[kTileSlots];
    Tile tiles[kTileSlots];
  };
  using Ring = RingPosition<kStages>;
  using TileRing = RingPosition<kTileSlots>;

  static __device__ void initialise_barriers(auto& shared) {
    constexpr int kWarps = 4;  // per warpgroup; each warp arrives when it is done
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

  // The last blocks of queries come first: with a causal mask they see the most keys. A tile by
  // request has no queries if its slot is empty.
  static __device__ Tile tile_at(const Arguments& a, int index) {
    if constexpr (kByRequest) {
      return request_tile_at(a, index);
    } else {
      const SectionItem item = item_in_sections(index, a.batch_heads, a.section_heads, a.q_blocks);
      const int missing_rows = kConfig.first_lacks_rows ? a.missing_rows : 0;
      const int first_query = (a.q_blocks - 1 - item.block) * kBlockQ - missing_rows;
      return {item.head / a.heads, item.head % a.heads, first_query,
              kv_blocks(a, first_query, kBlockQ)};
    }
  }
  static constexpr int kNoTile = -1;  // value of kv_blocks after the last tile
  static __device__ Tile no_tile() {
    Tile tile{};
    tile.kv_blocks = kNoTile;
    return tile;
  }

  // The number of blocks of keys that these queries see; 0 if the queries do not exist.
  static __device__ int kv_blocks(const Arguments& a, int first_query, int queries) {
    if (first_query >= a.q_len) return 0;
    if (kConfig.first_lacks_rows && first_query + queries <= 0) return 0;
    const int keys = a.visible_keys(min(first_query + queries, a.q_len) - 1);
    return (max(0, keys) + kBlockKv - 1) / kBlockKv;
  }

  static __device__ Tile request_tile_at(const Arguments& a, int index) {
    const SectionItem item = item_in_sections(index, a.heads, a.section_heads, a.q_blocks);
    Tile tile{};
    tile.head = item.head;
    RequestBlock found;
    if (a.cu_seqlens_q == nullptr) {
      found.blocks = (a.q_len + kBlockQ - 1) / kBlockQ;
      found.request = item.block / found.blocks;
      found.block = item.block % found.blocks;
      tile.q_len = a.q_len;
      tile.kv_len = a.kv_len;
    } else {
      found = block_in_slot<kBlockQ>(a.cu_seqlens_q, a.cu_seqlens_k, a.requests, item.block,
                                     a.right == 0);
      if (found.request < 0) return tile;
      const int first_q = a.cu_seqlens_q[found.request], first_k = a.cu_seqlens_k[found.request];
      tile.q_len = a.cu_seqlens_q[found.request + 1] - first_q;
      tile.kv_len = a.cu_seqlens_k[found.request + 1] - first_k;
      if (a.packed) {
        tile.first_q = first_q;
        tile.first_k = first_k;
      }
    }
    tile.batch = found.request;
    tile.first_query = (found.blocks - 1 - found.block) * kBlockQ;

    const int diagonal = a.top_left ? 0 : tile.kv_len - tile.q_len;
    tile.first_from = diagonal - a.left;
    tile.end_from = diagonal + a.right + 1;
    const int unseen = max(0, tile.first_from);  // keys before the first that any query sees
    tile.kv_len = max(0, min(tile.kv_len, tile.q_len - 1 + tile.end_from) - unseen);
    tile.first_k += unseen;
    tile.first_from -= unseen;
    tile.end_from -= unseen;
    const BlockRange seen = seen_blocks(tile, tile.first_query, kBlockQ);
    tile.first_block = seen.first;
    tile.kv_blocks = seen.end;
    return tile;
  }

  // Keys [first, end) are those that a query of the request sees, if any.
  static __device__ int first_key(const RequestTile& tile, int query) {
    return max(0, query + tile.first_from);
  }
  static __device__ int end_key(const RequestTile& tile, int query) {
    return min(tile.kv_len, query + tile.end_from);
  }

  // The blocks of keys that these queries of the request see; none are 0 to 0.
  struct BlockRange {
    int first, end;
  };
  static __device__ BlockRange seen_blocks(const RequestTile& tile, int first_query, int queries) {
    const int last_query = min(first_query + queries, tile.q_len) - 1;
    const int first = first_key(tile, first_query), end = end_key(tile, last_query);
    if (first_query > last_query || first >= end) return {0, 0};
    return {first / kBlockKv, (end + kBlockKv - 1) / kBlockKv};
  }

  // What the equal lengths of a launch say of every tile, and a request of its own.
  static __device__ int first_block(const Tile& tile) {
    if constexpr (kByRequest) {
      return tile.first_block;
    } else {
      return 0;
    }
  }
  static __device__ int q_len(const Arguments& a, const Tile& tile) {
    if constexpr (kByRequest) {
      return tile.q_len;
    } else {
      return a.q_len;
    }
  }
  static __device__ auto q_rows(const Arguments& a, const Tile& tile) {
    if constexpr (kByRequest) {
      return RowsOfRequest(a.q_steps, tile.batch, tile.head, tile.first_q, tile.q_len);
    } else {
      return RowsOfHead{tile.head, tile.batch};
    }
  }
  static __device__ auto o_rows(const Arguments& a, const Tile& tile) {
    if constexpr (kByRequest) {
      return RowsOfRequest(a.o_steps, tile.batch, tile.head, tile.first_q, tile.q_len);
    } else if constexpr (kConfig.first_lacks_rows) {
      return StoredRowsOfHead{tile.head, tile.batch};
    } else {
      return RowsOfHead{tile.head, tile.batch};
    }
  }
  static __device__ auto kv_rows(const RowSteps& steps, const Tile& tile, int kv_head) {
    if constexpr (kByRequest) {
      return RowsOfRequest(steps, tile.batch, kv_head, tile.first_k, tile.kv_len);
    } else {
      return RowsOfHead{kv_head, tile.batch};
    }
  }

  // ---- The producer

  // Loads a block of rows.
  template <int kPanelBytes, typename Rows>
  static __device__ void copy(const CUtensorMap& tensor, char* to, uint64_t& full, const Rows& rows,
                              int row, ptx::CachePolicy policy) {
    const uint32_t barrier = ptx::shared_address(&full);
    ptx::mbarrier_arrive_expect_tx(barrier, kPanels * kPanelBytes);
    load_rows<kPanels, kPanelBytes>(tensor, to, barrier, rows, row, policy);
  }

  // Returns the next tile index of the launch: unique, counting from 0. A launch takes `tiles`
  // indices, one after every tile. The counter wraps around, so that the last index taken leaves it
  // ready for the next launch: at `tiles` - 1 or above.
  static __device__ unsigned take_tile(unsigned* last_taken, unsigned tiles) {
    const unsigned last = atomicInc(last_taken, tiles - 1);
    return last >= tiles - 1 ? 0 : last + 1;
  }

  // Prefetches Q into the L2 cache while shared memory has no room for it.
  template <typename Rows>
  static __device__ void prefetch_q(const Arguments& a, const Rows& rows, int first_query) {
#pragma unroll
    for (int i = 0; i < kConsumers * kPanels; ++i) {
      rows.prefetch(a.q, i % kPanels * 64, first_query + i / kPanels * kConsumerRows);
    }
  }

  // The tile at `index`, or at the next index that is not an empty slot. Called by whole warps if
  // by request.
  static __device__ Tile next_tile(const Arguments& a, unsigned& index, unsigned tiles) {
    if constexpr (kByRequest) {
      for (; index < tiles; index = next_index(a, tiles)) {
        const Tile tile = tile_at(a, static_cast<int>(index));
        if (tile.q_len > 0) return tile;
      }
      return no_tile();
    } else {
      return index < tiles ? tile_at(a, static_cast<int>(index)) : no_tile();
    }
  }
  static __device__ unsigned next_index(const Arguments& a, unsigned tiles) {
    if constexpr (kByRequest) {
      unsigned taken = 0;
      if (threadIdx.x == 0) taken = take_tile(a.last_taken, tiles);
      return gridDim.x + __shfl_sync(~0u, taken, 0);
    } else {
      return gridDim.x + take_tile(a.last_taken, tiles);
    }
  }

  // Takes tiles, publishes them in the ring, and loads their K and V. It takes a tile only when the
  // previous one has been loaded, so that all thread blocks finish at about the same time. By
  // request, a whole warp takes the tiles, and its first lane does the rest, but for pages.
  static __device__ void produce_kv(const Arguments& a, Shared& shared) {
    Ring ring;
    const unsigned tiles =
        static_cast<unsigned>((kByRequest ? a.heads : a.batch_heads) * a.q_blocks);
    unsigned index = blockIdx.x;
    for (TileRing tile_ring;; tile_ring.advance()) {
      const Tile tile = next_tile(a, index, tiles);
      if (!kByRequest || threadIdx.x == 0) {
        wait(shared.tile_empty[tile_ring.stage], tile_ring.parity ^ 1);
        shared.tiles[tile_ring.stage] = tile;
        arrive(shared.tile_full[tile_ring.stage]);
        if (!kByRequest || a.block_table == nullptr) produce_kv_of(a, shared, tile, ring);
      }
      if constexpr (kByRequest) {
        __syncwarp();
        if (a.block_table != nullptr) produce_paged_kv_of(a, shared, tile, ring);
      }
      if (tile.kv_blocks == kNoTile) return;
      index = next_index(a, tiles);
    }
  }

  static __device__ __forceinline__ void produce_kv_of(const Arguments& a, Shared& shared,
                                                       const Tile& tile, Ring& ring) {
    const int kv_head = tile.head / a.heads_per_kv_head;
    const auto k_rows = kv_rows(a.k_steps, tile, kv_head);
    const auto v_rows = kv_rows(a.v_steps, tile, kv_head);
    for (int block = tile.kv_blocks - 1; block >= first_block(tile); --block, ring.advance()) {
      wait(shared.k_empty[ring.stage], ring.parity ^ 1);
      copy<kKvPanelBytes>(a.k, shared.k[ring.stage], shared.k_full[ring.stage], k_rows,
                          block * kBlockKv, ptx::CachePolicy::evict_last);
      wait(shared.v_empty[ring.stage], ring.parity ^ 1);
      copy<kKvPanelBytes>(a.v, shared.v[ring.stage], shared.v_full[ring.stage], v_rows,
                          block * kBlockKv, ptx::CachePolicy::evict_last);
    }
  }

  // The same from pages, by a whole warp: each lane loads a box of the block, and has looked up its
  // page while the block before was loaded.
  static __device__ __forceinline__ void produce_paged_kv_of(const Arguments& a, Shared& shared,
                                                             const Tile& tile, Ring& ring) {
    const int kv_head = tile.head / a.heads_per_kv_head;
    const int box_row = static_cast<int>(threadIdx.x) % 32 * a.box_rows;
    const bool has_box = box_row < kBlockKv;
    const int* table = a.block_table + tile.batch * a.table_stride;
    const auto look_up = [&](int block) {
      const int key = block * kBlockKv + box_row;
      const bool exists = has_box && block >= tile.first_block && key < tile.kv_len;
      return exists ? __ldg(table + a.page_size.quotient(key)) : 0;
    };
    const auto copy_box = [&](const CUtensorMap& tensor, const RowSteps& steps, char* to,
                              uint64_t& full, int page, int key) {
      const uint32_t barrier = ptx::shared_address(&full);
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive_expect_tx(barrier, kPanels * kKvPanelBytes);
      __syncwarp();
      if (!has_box) return;
      // Rows of the page behind the request's last key are zeros.
      const int row = a.page_size.remainder(key);
      const int count = max(0, min(a.page_rows, tile.kv_len - (key - row)));
      load_rows<kPanels, kKvPanelBytes>(tensor, to + box_row * kRowBytes, barrier,
                                        RowsOfRequest(steps, page, kv_head, 0, count), row,
                                        ptx::CachePolicy::evict_last);
    };
    int page = look_up(tile.kv_blocks - 1);
    for (int block = tile.kv_blocks - 1; block >= tile.first_block; --block, ring.advance()) {
      const int next_page = look_up(block - 1), key = block * kBlockKv + box_row;
      wait(shared.k_empty[ring.stage], ring.parity ^ 1);
      copy_box(a.k, a.k_steps, shared.k[ring.stage], shared.k_full[ring.stage], page, key);
      wait(shared.v_empty[ring.stage], ring.parity ^ 1);
      copy_box(a.v, a.v_steps, shared.v[ring.stage], shared.v_full[ring.stage], page, key);
      page = next_page;
    }
  }

  // Loads Q of the tiles that see a key. Prefetches it into the L2 cache while shared memory has no
  // room.
  static __device__ void produce_q(const Arguments& a, Shared& shared) {
    uint32_t parity = 0;
    for (TileRing tile_ring;; tile_ring.advance()) {
      wait(shared.tile_full[tile_ring.stage], tile_ring.parity);
      const Tile tile = shared.tiles[tile_ring.stage];
      arrive(shared.tile_empty[tile_ring.stage]);
      if (tile.kv_blocks == kNoTile) return;
      if (tile.kv_blocks == 0) continue;
      const auto rows = q_rows(a, tile);
      prefetch_q(a, rows, tile.first_query);
      for (int i = 0; i < kConsumers; ++i) {
        wait(shared.q_empty[i], parity ^ 1);
        copy<kQPanelBytes>(a.q, shared.q[i], shared.q_full[i], rows,
                           tile.first_query + kConsumerRows * i, ptx::CachePolicy::evict_first);
      }
      parity ^= 1;
    }
  }

  // ---- A consumer

  // Starts S = Q K^T.
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

  // The online softmax state of a thread's two rows; `sum` covers only this thread's columns.
  struct Rows {
    float maximum[2] = {-kInfinity, -kInfinity};
    float sum[2] = {0, 0};
  };

  // Sets the scores of keys that a row does not see to -infinity. `visible` counts from this lane's
  // first key.
  static __device__ void mask(float (&s)[kSFloats], const int (&visible)[2]) {
#pragma unroll
    for (int i = 0; i < kSFloats; ++i) {
      if (i / 4 * 8 + i % 2 >= visible[i / 2 % 2]) s[i] = -kInfinity;
    }
  }

  // The same of the keys before `first`, where a window begins.
  static __device__ void mask_before(float (&s)[kSFloats], const int (&first)[2]) {
#pragma unroll
    for (int i = 0; i < kSFloats; ++i) {
      if (i / 4 * 8 + i % 2 < first[i / 2 % 2]) s[i] = -kInfinity;
    }
  }

  // Masks a block for this thread's rows.
  static __device__ __forceinline__ void mask_block(const Arguments& a, const Tile& tile,
                                                    int first_row, int block,
                                                    float (&s)[kSFloats]) {
    const int first = block * kBlockKv + static_cast<int>(threadIdx.x) % 4 * 2;
    if constexpr (kByRequest) {
      mask(s, {end_key(tile, first_row) - first, end_key(tile, first_row + 8) - first});
      const int begins[2] = {first_key(tile, first_row), first_key(tile, first_row + 8)};
      if (begins[1] > block * kBlockKv) mask_before(s, {begins[0] - first, begins[1] - first});
    } else {
      mask(s, {a.visible_keys(first_row) - first, a.visible_keys(first_row + 8) - first});
    }
  }

  // Scales scores to the softmax's exponents in base 2.
  static __device__ void scale(float (&s)[kSFloats], float factor) {
#pragma unroll
    for (int i = 0; i < kSFloats; ++i) s[i] = __fmul_rn(s[i], factor);
  }

  // If any maximum has grown too much, raises the maxima to those of S, in base 2, and rescales the
  // sums and O.
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
      // Also true for NaN, the difference in a row that has seen no key so far.
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

  // The base of the exponents: the maximum, or 0 for a row that has seen no key, whose P must be 0
  // and not NaN.
  static __device__ float base_of(float maximum) {
    return maximum == -kInfinity ? 0 : maximum;
  }

  // P = 2^(S - base); if not kScaled, S is scaled here first. Adds the row sums of P to `sum`. The
  // accumulators, rounded, have the layout of the A operand.
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

  // Computes P relative to the running maxima, without waiting for the block's own maxima. Returns
  // false and changes nothing else if a sum shows that they lag behind too far, or that the
  // exponents may all be 0. In that case the multiply-add of the exponent rounds differently than
  // the maximum was rounded, which would leave an error of 1e-7 in results that are exact for equal
  // scores.
  static __device__ bool try_maximum(const float (&s)[kSFloats], uint32_t (&p)[kPSteps][4],
                                     Rows& rows, float scale_log2) {
    constexpr float kOnes = kSFloats / 2, kTrace = kOnes * 0x1p-16f;
    static_assert(kOnes * 8 <= kLargestSum);  // 2^kRescaleThreshold
    float sum[2] = {0, 0};
    exponentiate<false>(s, p, rows.maximum, sum, scale_log2);
    bool good = true;  // also false for a NaN sum, and for a row without a maximum
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

  static __device__ bool exists(const Arguments& a, const Tile& tile, int query) {
    return static_cast<unsigned>(query) < static_cast<unsigned>(q_len(a, tile));
  }

  static __device__ int64_t logsumexp_index(const Arguments& a, const Tile& tile, int row) {
    if constexpr (kByRequest) {
      return tile.batch * a.logsumexp_batch_stride + tile.head * a.logsumexp_head_stride +
             tile.first_q + row;
    } else {
      return (int64_t{tile.batch} * a.heads + tile.head) * a.q_len + row;
    }
  }

  // Stores the logsumexp of this thread's rows. `inverse` receives the factor that turns O into the
  // output: 1 / sum, or 0 for a row that saw no key.
  static __device__ void store_logsumexp(const Arguments& a, const Tile& tile, int first_row,
                                         const Rows& rows, float (&inverse)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 8 * i;
      float sum = rows.sum[i];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      inverse[i] = sum == 0 ? 0 : 1 / sum;
      if (threadIdx.x % 4 == 0 && exists(a, tile, row)) {
        a.logsumexp[logsumexp_index(a, tile, row)] =
            (rows.maximum[i] + log2f(sum)) * std::numbers::ln2_v<float>;
      }
    }
  }

  static __device__ int row_of_o(const Tile& tile, int row) {
    if constexpr (kByRequest) {
      return tile.first_q + row;
    } else {
      return row;
    }
  }

  // Stores O directly from registers, 16 bytes at a time.
  static __device__ void store_o(const Arguments& a, const Tile& tile, int first_row,
                                 const float (&o)[kOFloats], const float (&inverse)[2]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 8 * i;
      T* out = static_cast<T*>(a.o) + tile.batch * a.o_batch_stride + tile.head * a.o_head_stride +
               row_of_o(tile, row) * a.o_row_stride;
      // A thread holds 2 of every 8 columns. After a transpose it holds 8 adjacent ones of every
      // 32.
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
        if (exists(a, tile, row) && column < a.head_dim) {
          *reinterpret_cast<uint4*>(out + column) =
              make_uint4(words[0], words[1], words[2], words[3]);
        }
      }
    }
  }

  // Stores O by TMA, through the warp's part of shared memory.
  static __device__ void stage_o(const Arguments& a, const Tile& tile, char* stage, int warp_row,
                                 const float (&o)[kOFloats], const float (&inverse)[2]) {
    if (threadIdx.x % 32 == 0) ptx::cp_async_bulk_wait_group_read_0();  // of the previous tile
    __syncwarp();
    send_rows<T>(o, inverse, ptx::shared_address(stage), kOPanelBytes, a.staged_o, o_rows(a, tile),
                 warp_row);
  }

  // Stores the results of a tile: O / sum and the logsumexp of this warp's rows.
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
    // Named barriers with which the consumers take turns.
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
    // Releases a block of keys of which this consumer sees none. The __syncwarp is needed because
    // nothing else keeps the releasing lane from running ahead of lanes that still wait. If it were
    // two phases ahead, they would wait for ever.
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
    // Of the tile at tile_ring: the current block of keys, and the first that this consumer sees.
    // There is none if the current one lies before the first.
    int block = 0, first_seen = 0;
    // All of its queries see all keys of the blocks from `unmasked_from` to `first_masked`, less 1.
    int unmasked_from = 0, first_masked = 0;
    // Begins the tile at tile_ring, at the last block that this consumer sees. Returns false if
    // there are no more tiles.
    const auto begin_tile = [&]() {
      wait(shared.tile_full[tile_ring.stage], tile_ring.parity);
      const Tile& tile = shared.tiles[tile_ring.stage];
      const int first_query = tile.first_query + kConsumerRows * consumer;
      if constexpr (kByRequest) {
        const BlockRange seen = seen_blocks(tile, first_query, kConsumerRows);
        first_seen = max(seen.first, tile.first_block);
        block = max(seen.end, tile.first_block) - 1;
        first_masked = end_key(tile, first_query) / kBlockKv;
        const int last_query = min(first_query + kConsumerRows, tile.q_len) - 1;
        unmasked_from = (first_key(tile, last_query) + kBlockKv - 1) / kBlockKv;
      } else {
        block = tile.kv_blocks == kNoTile ? -1 : kv_blocks(a, first_query, kConsumerRows) - 1;
        first_masked = a.visible_keys(first_query) / kBlockKv;
      }
      for (int i = tile.kv_blocks - 1; i > block; --i) skip_block();
      if (tile.kv_blocks > 0) wait(shared.q_full[consumer], q_parity);
      if (block >= first_seen) {
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
    // Issued even if no key is seen, where it is useless: if a product were in flight on only one
    // path, the compiler would wait for it on both.
    issue_qk(s, q, k.advance(k_ring.stage * kKvBytes));
    while (more) {
      Rows rows;
      bool fresh = true;  // there is no maximum to try yet
      // Rows that do not exist are 0, and so are their scores. try_maximum would fail for them in
      // every block, and with them for their whole warp. An infinite maximum makes their P 0.
      const int first_row = shared.tiles[tile_ring.stage].first_query + row_in_tile;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!exists(a, shared.tiles[tile_ring.stage], first_row + 8 * i)) {
          rows.maximum[i] = kInfinity;
        }
      }
#pragma unroll
      for (int i = 0; i < kOFloats; ++i) o[i] = 0;
      ptx::wgmma_wait_group<0>();
      ptx::keep_here(s);
      for (; block >= first_seen; --block) {
        // S is complete, so K is free, and after the last block Q is free too.
        release_k();
        if (block == first_seen) release_q();

        // Test the barriers before the exponentials, because the answer takes a while.
        const bool v_is_full = is_full(shared.v_full[v_ring.stage], v_ring.parity);
        const bool k_is_full =
            block > first_seen && is_full(shared.k_full[k_ring.stage], k_ring.parity);

        // Turn S into P.
        const bool masked = block >= first_masked || (kByRequest && block < unmasked_from);
        if (masked || fresh || !try_maximum(s, p, rows, a.scale_log2)) {
          scale(s, a.scale_log2);
          if (masked) mask_block(a, shared.tiles[tile_ring.stage], first_row, block, s);
          raise_maximum(s, rows, o);
          exponentiate<true>(s, p, {base_of(rows.maximum[0]), base_of(rows.maximum[1])}, rows.sum,
                             a.scale_log2);
        }
        fresh = false;

        if (!v_is_full) wait(shared.v_full[v_ring.stage], v_ring.parity);
        if (block > first_seen && !k_is_full) wait(shared.k_full[k_ring.stage], k_ring.parity);
        if constexpr (kConfig.turns) ptx::barrier_sync(my_turn, kTurnThreads);
        issue_pv(o, p, v.advance(v_ring.stage * kKvBytes));
        if (block > first_seen) {
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

      if constexpr (kByRequest) {
        for (int i = first_seen; i > shared.tiles[tile_ring.stage].first_block; --i) skip_block();
      }

      // Store O while the first product of the next tile runs.
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
    // The shuffle tells the compiler that the value is the same in all lanes.
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
      ptx::setmaxnreg_dec<kProducerRegisters>();
      if (threadIdx.x < (kByRequest ? 32 : 1)) produce_kv(a, shared);
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
