// The tiles of the forward kernels for Hopper: in which order thread blocks take them, and which
// queries and keys each has.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "kernels/common/requests.cuh"
#include "kernels/common/sections.cuh"
#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// TMA stores no box that begins before the tensor. All rows of such a one are missing.
struct StoredRowsOfHead : RowsOfHead {
  __device__ __forceinline__ void store(const CUtensorMap& map, int column, int row,
                                        uint32_t from) const {
    if (row >= 0) RowsOfHead::store(map, column, row, from);
  }
};

// The same of a request, whose tensor has rows of others there.
struct StoredRowsOfRequest : RowsOfRequest {
  using RowsOfRequest::RowsOfRequest;
  __device__ __forceinline__ void store(const CUtensorMap& map, int column, int row,
                                        uint32_t from) const {
    if (row >= 0) RowsOfRequest::store(map, column, row, from);
  }
};

// The same of a share, of which the rows before `begin` are not.
struct StoredRowsOfShare : RowsOfHead {
  int begin;
  __device__ __forceinline__ void store(const CUtensorMap& map, int column, int row,
                                        uint32_t from) const {
    if (row >= begin) RowsOfHead::store(map, column, row, from);
  }
};

// A block of queries of one head, and the number of the block of keys behind the last that it sees.
// Queries below 0 and from q_len on do not exist.
struct alignas(16) Tile {
  int batch, head, first_query, kv_blocks;
};

// The same, or a piece of one: `kv_blocks` are those of the piece, numbered from 0.
struct PieceTile : Tile {
  static constexpr int kWhole = -1;
  int blocks_before;  // of keys, before those of the piece
  int piece;          // counts all pieces of the launch; kWhole if this is none
};

// The same of a share: queries before `begin` are not of it.
struct ShareTile : Tile {
  int begin;
};

// The same of a request, of which it says all that the roles need. The keys of the request are
// those that any of its queries sees.
struct RequestTile : Tile {
  int first_block;  // of keys that it sees
  int q_len, kv_len;
  int first_from, end_from;  // query i sees keys max(0, i + first_from) to i + end_from
  int first_q, first_k;      // of the request, among the rows of the tensors
};

// One of the parts of its blocks of keys.
struct TilePart : RequestTile {
  int part;
};

template <Config kConfig>
struct ForwardTiles {
  static constexpr int kBlockQ = kConfig.block_q;
  static constexpr int kBlockKv = kConfig.block_kv;
  static constexpr bool kByRequest = kConfig.by_request;
  static_assert(kByRequest || !(kConfig.in_parts || kConfig.looks_up));
  static constexpr bool kHasWindows = kByRequest && !kConfig.in_parts;
  static constexpr bool kHasPieces = kConfig.has_pieces;
  static_assert(!kHasPieces || !(kByRequest || kConfig.shared));
  using Tile = std::conditional_t<
      kConfig.in_parts, TilePart,
      std::conditional_t<
          kByRequest, RequestTile,
          std::conditional_t<kConfig.shared, ShareTile,
                             std::conditional_t<kHasPieces, PieceTile, sm90::Tile>>>>;

  // The number of tiles of a launch.
  static __device__ unsigned count(const Arguments& a) {
    if constexpr (kConfig.in_parts) {
      return static_cast<unsigned>(a.head_groups.divisor() * a.q_blocks * a.parts.divisor());
    } else if constexpr (kHasPieces) {
      return static_cast<unsigned>(a.pieces.whole_tiles + a.pieces.split_tiles * a.pieces.each);
    } else {
      return static_cast<unsigned>((kByRequest ? a.heads : a.batch_heads) * a.q_blocks);
    }
  }

  // Thread blocks of pairs are numbered in the third dimension of the grid, along which clusters
  // lie.
  static __device__ unsigned thread_block() { return kConfig.in_pairs ? blockIdx.z : blockIdx.x; }

  // Returns the next tile index of the launch: unique, counting from 0. A launch takes `tiles`
  // indices, one after every tile. The counter wraps around, so that the last index taken leaves it
  // ready for the next launch: at `tiles` - 1 or above.
  static __device__ unsigned take_tile(unsigned* last_taken, unsigned tiles) {
    const unsigned last = atomicInc(last_taken, tiles - 1);
    return last >= tiles - 1 ? 0 : last + 1;
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
    if constexpr (kConfig.in_pairs) {
      return tiles;
    } else if constexpr (kByRequest) {
      unsigned taken = 0;
      if (threadIdx.x % 32 == 0) taken = take_tile(a.last_taken, tiles);
      return gridDim.x + __shfl_sync(~0u, taken, 0);
    } else {
      return gridDim.x + take_tile(a.last_taken, tiles);
    }
  }

  // The last blocks of queries come first: with a causal mask they see the most keys. `order` may
  // change that. A tile by request has no queries if its slot is empty.
  static __device__ Tile tile_at(const Arguments& a, int index) {
    if constexpr (kConfig.in_parts) {
      return part_of_tile(a, request_tile_at(a, a.parts.quotient(index)), a.parts.remainder(index));
    } else if constexpr (kByRequest) {
      return request_tile_at(a, index);
    } else if constexpr (kConfig.shared) {
      return share_tile_at(a, a.order.item(index));
    } else if constexpr (kHasPieces) {
      return piece_at(a, index);
    } else {
      return whole_tile_at(a, index);
    }
  }
  static __device__ sm90::Tile whole_tile_at(const Arguments& a, int index) {
    const SectionItem item =
        item_in_sections(a.order.item(index), a.batch_heads, a.section_heads, a.q_blocks);
    const int missing_rows = kConfig.first_lacks_rows ? a.missing_rows : 0;
    const int first_query = (a.q_blocks - 1 - item.block) * kBlockQ - missing_rows;
    return {item.head / a.heads, item.head % a.heads, first_query,
            kv_blocks(a, first_query, kBlockQ)};
  }
  static constexpr int kNoTile = -1;  // value of kv_blocks after the last tile
  static __device__ Tile no_tile() {
    Tile tile{};
    tile.kv_blocks = kNoTile;
    return tile;
  }

  // A whole tile, or a piece of one of the last, which has about as many blocks of keys as the
  // others; it may have none.
  static __device__ PieceTile piece_at(const Arguments& a, int index) {
    const int each = a.pieces.each, piece = index - a.pieces.whole_tiles;
    PieceTile tile{whole_tile_at(a, piece < 0 ? index : a.pieces.whole_tiles + piece / each), 0,
                   PieceTile::kWhole};
    if (piece < 0) return tile;
    const int number = piece % each, blocks = tile.kv_blocks;
    tile.blocks_before = blocks * number / each;
    tile.kv_blocks = blocks * (number + 1) / each - tile.blocks_before;
    tile.piece = piece;
    return tile;
  }

  // The second range of all heads comes first: with a causal mask its tiles are the longest, and
  // alike, so that thread blocks go through the keys of a head together.
  static __device__ ShareTile share_tile_at(const Arguments& a, int index) {
    const int of_second = a.own[1].blocks * a.batch_heads;
    const bool second = index < of_second;
    const QueryRange& own = a.own[second ? 1 : 0];
    const SectionItem item = item_in_sections(second ? index : index - of_second, a.batch_heads,
                                              a.section_heads, own.blocks);
    const int first_query = own.end - (item.block + 1) * kBlockQ;
    ShareTile tile{};
    tile.head = item.head % a.heads;
    tile.batch = item.head / a.heads;
    tile.first_query = first_query;
    tile.begin = own.first;
    tile.kv_blocks = kv_blocks(a, first_query, kBlockQ);
    return tile;
  }

  // Blocks of keys before the one with number 0.
  static __device__ int blocks_before([[maybe_unused]] const Tile& tile) {
    if constexpr (kHasPieces) {
      return tile.blocks_before;
    } else {
      return 0;
    }
  }

  // The number of blocks of keys that these queries of a tile see; 0 if the queries do not exist.
  static __device__ int kv_blocks(const Arguments& a, const Tile& tile, int first_query,
                                  int queries) {
    if constexpr (kConfig.shared) {
      if (first_query + queries <= tile.begin) return 0;
    }
    return kv_blocks(a, first_query, queries);
  }
  static __device__ int kv_blocks(const Arguments& a, int first_query, int queries) {
    if (first_query >= a.q_len) return 0;
    if (kConfig.first_lacks_rows && first_query + queries <= 0) return 0;
    const int keys = a.visible_keys(min(first_query + queries, a.q_len) - 1);
    return (max(0, keys) + kBlockKv - 1) / kBlockKv;
  }

  static __device__ Tile request_tile_at(const Arguments& a, int index) {
    SectionItem item;
    Tile tile{};
    if constexpr (kConfig.in_parts) {
      item = {a.head_groups.remainder(index), a.head_groups.quotient(index)};
      tile.head = item.head * a.packed_heads;
    } else {
      item = item_in_sections(index, a.heads, a.section_heads, a.q_blocks);
      tile.head = item.head;
    }
    RequestBlock found;
    if (kConfig.looks_up && a.cu_seqlens_q != nullptr) {
      found = block_in_slot<kBlockQ>(a.cu_seqlens_q, a.cu_seqlens_k, a.requests.divisor(),
                                     item.block, a.right == 0);
      if (found.request < 0) return tile;
      const int first_q = a.cu_seqlens_q[found.request], first_k = a.cu_seqlens_k[found.request];
      tile.q_len = a.cu_seqlens_q[found.request + 1] - first_q;
      tile.kv_len = a.cu_seqlens_k[found.request + 1] - first_k;
      if (a.packed) {
        tile.first_q = first_q;
        tile.first_k = first_k;
      }
    } else {
      // Blocks of all requests that see as many keys come together.
      found = {a.requests.remainder(item.block), a.requests.quotient(item.block), a.request_blocks};
      tile.q_len = a.q_len;
      tile.kv_len = a.kv_len;
    }
    tile.batch = found.request;
    // Whole consumers lack rows: those before the request's first are others'.
    int missing_rows = 0;
    if constexpr (kConfig.first_lacks_rows) {
      missing_rows = (found.blocks * kBlockQ - tile.q_len) / kConsumerRows * kConsumerRows;
    }
    tile.first_query = (found.blocks - 1 - found.block) * kBlockQ - missing_rows;

    const int diagonal = a.top_left ? 0 : tile.kv_len - tile.q_len;
    tile.first_from = diagonal - a.left;
    tile.end_from = diagonal + a.right + 1;
    // Keys before the first that any query sees.
    const int unseen = kHasWindows ? max(0, tile.first_from) : 0;
    tile.kv_len = max(0, min(tile.kv_len, tile.q_len - 1 + tile.end_from) - unseen);
    tile.first_k += unseen;
    tile.first_from -= unseen;
    tile.end_from -= unseen;
    const BlockRange seen = seen_blocks(a, tile, tile.first_query, kBlockQ);
    tile.first_block = seen.first;
    tile.kv_blocks = seen.end;
    return tile;
  }

  // One of the parts of its blocks of keys, about as many each; it may have none.
  static __device__ Tile part_of_tile(const Arguments& a, Tile tile, int part) {
    const int first = tile.first_block, blocks = tile.kv_blocks - first;
    tile.part = part;
    tile.first_block = first + a.parts.quotient(blocks * part);
    tile.kv_blocks = first + a.parts.quotient(blocks * (part + 1));
    if (tile.first_block == tile.kv_blocks) tile.first_block = tile.kv_blocks = 0;
    return tile;
  }

  // Keys [first, end) are those that a query of the request sees, if any.
  static __device__ int first_key(const RequestTile& tile, int query) {
    return kHasWindows ? max(0, query + tile.first_from) : 0;
  }
  static __device__ int end_key(const RequestTile& tile, int query) {
    return min(tile.kv_len, query + tile.end_from);
  }

  // Where heads are packed, rows count through their queries: this has `row` of a tile.
  struct PackedRow {
    int head, query;
  };
  static __device__ PackedRow packed_row(const Arguments& a, const Tile& tile, int row) {
    if constexpr (kConfig.in_parts) {
      return {tile.head + a.head_rows.quotient(row), a.head_rows.remainder(row)};
    } else {
      return {tile.head, row};
    }
  }
  // All rows of a request with so many queries.
  static __device__ int rows(const Arguments& a, int queries) {
    if constexpr (kConfig.in_parts) {
      if (a.packed_heads > 1) return a.packed_heads * a.head_rows.divisor();
    }
    return queries;
  }

  // The queries of a block of rows: all of them, if heads are packed.
  struct QueryBlock {
    int first, count;
  };
  static __device__ QueryBlock queries(const Arguments& a, const RequestTile& tile, int first_row,
                                       int count) {
    if constexpr (kConfig.in_parts) {
      if (a.packed_heads > 1) {
        return {0, first_row < rows(a, tile.q_len) ? tile.q_len : 0};
      }
    }
    return {first_row, count};
  }

  // The blocks of keys that the queries of these rows see; none are 0 to 0.
  struct BlockRange {
    int first, end;
  };
  static __device__ BlockRange seen_blocks(const Arguments& a, const RequestTile& tile,
                                           int first_row, int count) {
    const QueryBlock block = queries(a, tile, first_row, count);
    return seen_blocks(tile, block.first, block.count);
  }
  static __device__ BlockRange seen_blocks(const RequestTile& tile, int first_query, int queries) {
    const int last_query = min(first_query + queries, tile.q_len) - 1;
    if constexpr (kConfig.first_lacks_rows) first_query = max(0, first_query);
    const int first = first_key(tile, first_query), end = end_key(tile, last_query);
    if (first_query > last_query || first >= end) return {0, 0};
    return {first / kBlockKv, (end + kBlockKv - 1) / kBlockKv};
  }

  static __device__ bool has_pages(const Arguments& a) {
    return kConfig.looks_up && a.block_table != nullptr;
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
  // The first of a consumer's rows of Q to load. Rows before a request's are others': those of a
  // consumer without rows are read behind its end, as zeros.
  static __device__ int loaded_row(const Tile& tile, int row) {
    if constexpr (kByRequest && kConfig.first_lacks_rows) {
      return row < 0 ? tile.q_len : row;
    } else {
      return row;
    }
  }
  static __device__ auto o_rows(const Arguments& a, const Tile& tile) {
    if constexpr (kByRequest) {
      return StoredRowsOfRequest(a.o_steps, tile.batch, tile.head, tile.first_q, tile.q_len);
    } else if constexpr (kConfig.shared) {
      return StoredRowsOfShare{{tile.head, tile.batch}, tile.begin};
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

  static __device__ bool exists(const Arguments& a, const Tile& tile, int row) {
    if constexpr (kConfig.shared) return row >= tile.begin;
    if constexpr (kConfig.in_parts) {
      return row < rows(a, tile.q_len) && packed_row(a, tile, row).query < tile.q_len;
    }
    return static_cast<unsigned>(row) < static_cast<unsigned>(q_len(a, tile));
  }
};

}  // namespace flashbench::kernels::sm90
