// What the steps of the tiled backward pass hand to each other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/problem.h"
#include "kernels/common/mask.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/tiles.h"

namespace flashbench::kernels {

// What lives in the workspace beside each thread's scratch.
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
  float* dq;         // [chunks, batch, q_heads, q_len, dq_stride]: dQ / scale by each chunk of keys
};

struct KeyTile {
  int64_t first;
  int64_t keys;
};

// Rows of one head against one key tile; rows and keys are counted from the tiles' first.
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
