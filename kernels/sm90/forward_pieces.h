// Tiles of the forward kernels for Hopper whose keys are split into pieces, one thread block each:
// those of the last wave (kernels/common/last_wave.h). The last piece of a tile merges them all
// (merge_pieces.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/attention.h"
#include "kernels/common/last_wave.h"

namespace flashbench::kernels::sm90 {

// What a kernel knows of them. The workspace has the sums of each piece, by warp, and how many
// pieces of a tile have stored theirs, for each warp; a tile uses the counters of its first piece.
struct Pieces {
  int whole_tiles, split_tiles;  // these are the last
  int each;                      // pieces of a split tile
  float* sums;
  unsigned* arrivals;
};

// The sums of so many rows of a piece: O, and of each of the four threads that share a row its
// maximum and its sum.
__host__ __device__ constexpr int piece_floats(int rows, int head_dim) {
  return rows * (head_dim + 4 * 2);
}

// The split tiles of a launch; none by default. `head_dim` is what the kernel is compiled for.
struct SplitTiles {
  LastWave last;
  BlockSizes blocks;
  int head_dim = 0;

  // The work items of a launch that has so many tiles.
  int64_t items(int64_t tiles) const;

  // The sums of all pieces, and with the counters behind them, which poisoned memory initialises.
  size_t sum_bytes() const;
  size_t workspace_bytes() const;
  Pieces arguments(int64_t tiles, void* workspace) const;

  // E.g. ", 24 tiles in 4 pieces"; empty if there are none.
  std::string describe() const;
};

// Those of so many tiles that have `kv_len` keys each. None if pieces would not end sooner.
SplitTiles split_tiles(int64_t tiles, int64_t at_once, int64_t kv_len, const BlockSizes&,
                       int head_dim);

}  // namespace flashbench::kernels::sm90
