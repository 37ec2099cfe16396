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
