// Data that the steps of the tiled backward pass share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/problem.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/tiles.h"

namespace flashbench::kernels {

// The shared arrays in the workspace; each thread's scratch follows them. Their rows are those of
// the first request, [q_heads, q_len], then those of the next.
struct BackwardWorkspace {
  BackwardWorkspace(Carver& carver, const Problem& p, int64_t key_chunks)
      : chunks(key_chunks),
        rows(p.q_heads * p.q_tokens()),
        dq_stride(round_up(p.head_dim, kTileStep)),
        delta(carver.floats(rows)),
        logsumexp(carver.floats(rows)),
        dq(carver.floats(chunks * rows * dq_stride)) {}

  // The row of the first query of a head.
  static int64_t first_row(const Problem& p, int64_t b, int64_t head) {
    return p.q_heads * p.first_query(b) + head * p.q_len_of(b);
  }

  int64_t chunks, rows, dq_stride;
  float* delta;      // [rows]: D
  float* logsumexp;  // [rows], in base 2
  float* dq;         // [chunks, rows, dq_stride]: each chunk's share of dQ / scale
};

// The key tiles and queries below are of one request.
struct KeyTile {
  int64_t first;
  int64_t keys;
};

// The queries from the first to the last that see any of its keys.
inline RowRange queries_of(const Problem& p, const KeyTile& tile) {
  return {p.queries_that_see(tile.first).first, p.queries_that_see(tile.first + tile.keys - 1).end};
}

// A tile of query rows against one key tile; row and key indices are relative to the tiles.
struct QueryTile {
  const Problem& p;
  KeyTile key_tile;
  int64_t first;
  int64_t rows;

  // Keys that the row sees.
  RowRange visible(int64_t row) const {
    const RowRange keys = p.visible_keys(first + row);
    return {std::clamp<int64_t>(keys.first - key_tile.first, 0, key_tile.keys),
            std::clamp<int64_t>(keys.end - key_tile.first, 0, key_tile.keys)};
  }
  // Rows that see the key.
  RowRange rows_that_see(int64_t key) const {
    const RowRange queries = p.queries_that_see(key_tile.first + key);
    return {std::clamp<int64_t>(queries.first - first, 0, rows),
            std::clamp<int64_t>(queries.end - first, 0, rows)};
  }
  // Whether some row does not see some key.
  bool masked() const { return visible(0).end < key_tile.keys || visible(rows - 1).first > 0; }
};

}  // namespace flashbench::kernels
