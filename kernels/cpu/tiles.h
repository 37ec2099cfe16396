// Block sizes and scratch of the tiled CPU kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "attention/problem.h"

namespace flashbench::kernels {

// The most columns of any row-major matrix in scratch, and the row stride in floats. The stride is
// one cache line longer, so that the elements of a column do not fall into the same cache sets.
inline constexpr size_t kMaxColumns = 256;
inline constexpr size_t kRowStride = kMaxColumns + 16;

// Query and key tile sizes are multiples of this, which is a multiple of every target's
// micro-kernel width.
inline constexpr int64_t kTileStep = 32;

template <typename Integer>
constexpr Integer round_down(Integer value, Integer step) {
  return value / step * step;
}
template <typename Integer>
constexpr Integer round_up(Integer value, Integer step) {
  return round_down(value + step - 1, step);
}

// A tile of queries against a tile of keys.
struct Tile {
  int64_t queries, keys;
};

// Chooses the tile for a problem that `threads` threads share.
Tile choose_tile(const Problem&, int threads);

// E.g. "256x128": queries and keys.
std::string name_of(Tile);

// E.g. "cpu_tiled_forward 256x128 AVX3": a kernel and the SIMD target that it dispatches to.
std::string with_target(std::string_view kernel);

}  // namespace flashbench::kernels
