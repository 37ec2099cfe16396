#include "kernels/sm90/forward_pieces.h"

#include <algorithm>

#include "kernels/sm90/consumer_rows.h"

namespace flashbench::kernels::sm90 {

int64_t SplitTiles::items(int64_t tiles) const {
  return tiles + int64_t{last.items} * (last.pieces - 1);
}

size_t SplitTiles::sum_bytes() const {
  const int64_t pieces = int64_t{last.items} * last.pieces;
  return static_cast<size_t>(pieces * piece_floats(blocks.q, head_dim)) * sizeof(float);
}

size_t SplitTiles::workspace_bytes() const {
  const int64_t counters = int64_t{last.items} * last.pieces * (blocks.q / kWarpRows);
  return sum_bytes() + static_cast<size_t>(counters) * sizeof(unsigned);
}

Pieces SplitTiles::arguments(int64_t tiles, void* workspace) const {
  return {.whole_tiles = static_cast<int>(tiles - last.items),
          .split_tiles = last.items,
          .each = last.pieces,
          .sums = static_cast<float*>(workspace),
          .arrivals = reinterpret_cast<unsigned*>(static_cast<char*>(workspace) + sum_bytes())};
}

std::string SplitTiles::describe() const {
  if (last.items == 0) return "";
  return ", " + std::to_string(last.items) + " tiles in " + std::to_string(last.pieces) + " pieces";
}

SplitTiles split_tiles(int64_t tiles, int64_t at_once, int64_t kv_len, const BlockSizes& blocks,
                       int head_dim) {
  // Merging a piece takes as long as six blocks of 128 keys, by measurement of the kernel on e4m3
  // (docs/kernel-log.md). The kernel on 16 bits, whose blocks take longer, was not measured.
  constexpr int kMostWaves = 3, kKeysOfEnds = 6 * 128, kLeastKeys = 8 * 128;
  const PieceTimes times{.item = static_cast<int>((kv_len + blocks.kv - 1) / blocks.kv),
                         .ends = kKeysOfEnds / blocks.kv,
                         .least_share = kLeastKeys / blocks.kv};
  const auto slots = static_cast<int>(std::max<int64_t>(1, at_once));
  const LastWave last = last_wave(tiles, slots, kMostWaves, times);
  return last.pieces > 1 ? SplitTiles{last, blocks, head_dim} : SplitTiles{};
}

}  // namespace flashbench::kernels::sm90
