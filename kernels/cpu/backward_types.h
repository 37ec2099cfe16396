// Data that the steps of the tiled backward pass share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/problem.h"
#include "kernels/common/mask.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/tiles.h"

namespace flashbench::kernels {

// The shared arrays in the workspace; each thread's scratch follows them.
struct BackwardWorkspace {
  BackwardWorkspace(Carver& carver, const Problem& p, int64_t key_chunks)
      : chunks(key_chunks),
        dq_stride(round_up(p.head_dim, kTileStep)),
        delta(carver.floats(p.query_rows())),
        logsumexp(carver.floats(p.query_rows())),
        dq(carver.floats(chunks * p.query_rows() * dq_stride)) {}

  int64_t chunks, dq_stride;
  float* delta;      // [batch, q_heads, q_len]: D
  float* logsumexp;  // [batch, q_heads, q_len], in base 2
  float* dq;         // [chunks, batch, q_heads, q_len, dq_stride]: each chunk's share of dQ / scale
};

struct KeyTile {
  int64_t first;
  int64_t keys;
};

// A tile of query rows against one key tile; row and key indices are relative to the tiles.
struct QueryTile {
  const Problem& p;
  KeyTile key_tile;
  int64_t first;
  int64_t rows;

  int64_t visible(int64_t row) const {
    return std::clamp<int64_t>(p.visible_keys(first + row) - key_tile.first, 0, key_tile.keys);
  }
  // The first row that sees `key`, at most `rows`.
  int64_t first_row(int64_t key) const {
    return std::clamp<int64_t>(first_query_that_sees(p, key_tile.first + key) - first, 0, rows);
  }
  bool masked() const { return visible(0) < key_tile.keys; }
};

}  // namespace flashbench::kernels
