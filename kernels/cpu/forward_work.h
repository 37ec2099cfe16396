// How the forward pass on the CPU is shared out to threads. A request with many queries is cut into
// tiles of queries, each against all keys that it sees. A request with few queries, as in decoding,
// would fill a tile badly and give few threads work: it is cut into chunks of keys instead, each
// for all queries that share the K/V head, and the results of its chunks are merged.
//
// The number of keys of a chunk, and so the order of every sum, depends neither on the batch nor on
// the number of threads. The number of its heads does: one, or all that lie beside each other.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/lengths.h"
#include "attention/problem.h"
#include "attention/row_tiles.h"
#include "kernels/cpu/tiles.h"

namespace flashbench::kernels {

// The most queries of a request that is cut into chunks of keys (measured: docs/cpu_kernels.md).
inline constexpr int64_t kFewQueries = 16;

// Keys of a chunk: enough that merging costs little.
inline constexpr int64_t kChunkKeys = 512;

// Keys of some K/V heads of a request, for all queries that share them. What comes of head
// first_head + i is result first_result + i * results_per_head.
struct KeyChunk {
  int64_t batch, first_head, heads;
  RowRange keys;
  int64_t first_result, results_per_head;
};

class ForwardWork {
 public:
  ForwardWork(const Problem&, int threads);
  ForwardWork(const ForwardWork&) = delete;
  ForwardWork& operator=(const ForwardWork&) = delete;

  // Of requests with many queries: tiles of the queries of a query head.
  const RowTiles& tiles() const { return tiles_; }
  Tile tile() const { return tile_; }

  // Of requests with few queries: chunks of keys; and, for merging them, all queries of a query
  // head.
  int64_t chunks() const;
  KeyChunk chunk(int64_t number) const;
  const RowTiles& merges() const { return merges_; }

  // The results of the chunks of a K/V head: how many there are, and those of one head.
  int64_t results() const { return results_.size(); }
  RowRange results_of(int64_t batch, int64_t kv_head) const;

  // The most queries that share a K/V head in a request with few queries, and the most heads of a
  // chunk.
  int64_t most_rows() const { return most_rows_; }
  int64_t most_heads() const { return whole_chunks_ > 0 ? heads_ : 1; }

 private:
  Tile tile_;
  std::vector<RowRange> seen_;     // the keys that any query sees; of requests with few queries
  RequestRows many_, few_, keys_;  // queries, queries and keys; 0 of the other requests
  RowTiles tiles_, results_;
  int64_t heads_;         // of a whole chunk
  RowTiles chunks_;       // of keys, whole ones
  int64_t whole_chunks_;  // the first of these; the others are divided by head
  RowTiles merges_;
  int64_t most_rows_;
};

}  // namespace flashbench::kernels
