// The fp32 scratch of one thread, carved out of the caller's workspace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/problem.h"
#include "kernels/cpu/tiles.h"

namespace flashbench::kernels {

// Hands out consecutive arrays of floats, each aligned to a cache line. With a null base it only
// counts bytes.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<float*>(base)) {}

  float* floats(int64_t count) {
    const size_t at = used_;
    used_ += (static_cast<size_t>(count) + kLine - 1) / kLine * kLine;
    return base_ == nullptr ? nullptr : base_ + at;
  }
  size_t bytes() const { return used_ * sizeof(float); }

 private:
  static constexpr size_t kLine = 64 / sizeof(float);
  float* base_;
  size_t used_ = 0;
};

// Keys that a chunk computes at a time: a tile of scores of a few queries stays in registers and
// L1.
inline constexpr int64_t kChunkTile = 32;

// Panels are kPanel (at most kTileStep) columns wide and lie one after the other.
struct ForwardScratch {
  ForwardScratch(Carver& carver, Tile tile, const Problem& p)
      : k(carver.floats(tile.keys * kRowStride)),
        v(carver.floats(tile.keys * kRowStride)),
        q(carver.floats(tile.queries * p.head_dim)),
        o(carver.floats(tile.queries * p.value_dim())),
        scores(carver.floats(tile.keys * kTileStep)),
        maximum(carver.floats(tile.queries)),
        sum(carver.floats(tile.queries)),
        rescale(carver.floats(kTileStep)) {}

  float *k, *v;    // [keys, kRowStride]
  float *q, *o;    // transposed: panels [head_dim or value_dim, kPanel] of queries
  float* scores;   // transposed: [keys, kPanel]
  float* maximum;  // [queries], of the scores in base 2
  float* sum;      // [queries], of 2^(score - maximum)
  float* rescale;  // [kPanel]
};

// Of a chunk of keys of some K/V heads, each of which `rows` queries share: those of its first
// query head come first.
struct ChunkScratch {
  ChunkScratch(Carver& carver, int64_t heads, int64_t rows)
      : q(carver.floats(heads * rows * kRowStride)),
        k(carver.floats(kChunkTile * kRowStride)),
        v(carver.floats(kChunkTile * kRowStride)),
        scores(carver.floats(rows * kChunkTile)),
        rescale(carver.floats(rows)) {}

  float* q;       // [heads, rows, kRowStride]
  float *k, *v;   // [kChunkTile, kRowStride], where rows have no whole number of vectors
  float* scores;  // [rows, kChunkTile]
  float* rescale;
};

// What the chunks of keys give: each result is one head's, for up to `rows` queries.
struct ChunkResults {
  ChunkResults(Carver& carver, int64_t results, int64_t rows, int64_t value_dim)
      : value_stride(round_up<int64_t>(value_dim, 16)),
        stride_o(rows * value_stride),
        stride_rows(rows),
        all_o(carver.floats(results * stride_o)),
        all_maximum(carver.floats(results * rows)),
        all_sum(carver.floats(results * rows)) {}

  float* o(int64_t result) const { return all_o + result * stride_o; }  // [rows, value_stride]
  float* maximum(int64_t result) const { return all_maximum + result * stride_rows; }  // in base 2
  float* sum(int64_t result) const { return all_sum + result * stride_rows; }

  int64_t value_stride, stride_o, stride_rows;
  float *all_o, *all_maximum, *all_sum;
};

struct BackwardScratch {
  BackwardScratch(Carver& carver, Tile tile, const Problem& problem)
      : k_panels(carver.floats(tile.keys * problem.head_dim)),
        v_panels(carver.floats(tile.keys * problem.value_dim())),
        k(carver.floats(tile.keys * kRowStride)),
        dk(carver.floats(tile.keys * kRowStride)),
        dv(carver.floats(tile.keys * kRowStride)),
        q(carver.floats(tile.queries * kRowStride)),
        d_o(carver.floats(tile.queries * kRowStride)),
        p(carver.floats(tile.queries * kRowStride)),
        ds(carver.floats(tile.queries * kRowStride)) {}

  float *k_panels, *v_panels;  // transposed: panels [head_dim or value_dim, kPanel] of keys
  float *k, *dk, *dv;          // [keys, kRowStride]
  float *q, *d_o;              // [queries, kRowStride]
  float *p, *ds;               // [queries, kRowStride], one column per key; ds holds dP first
};

}  // namespace flashbench::kernels
