#include "kernels/sm90/forward_blocks.h"

#include <algorithm>
#include <limits>

#include "kernels/common/fused_forward.h"
#include "kernels/common/requests.h"

namespace flashbench::kernels::sm90 {
namespace {

// The costs of a tile (a block of queries of one head) in clocks: to start and to end it, and for
// each block of keys; and the share of the tensor cores' peak that its products reach. They are
// fitted together, to choose the fastest blocks in 151 problems of length 77 to 8192, most of them
// on an H200 (docs/kernel-log.md): a single one is no measurement.
struct TileCosts {
  double ends, key_block, peak_share;
};

TileCosts tile_costs(int64_t head_dim, const BlockSizes& blocks) {
  if (head_dim <= 64) {
    if (blocks.q == 64) return {1310, 180, 0.55};
    if (blocks.q == 128) return {1990, 780, 0.719};
    return blocks.kv == 64 ? TileCosts{2150, 270, 0.676} : TileCosts{2710, 290, 0.669};
  }
  if (head_dim <= 80) {
    if (blocks.q == 64) return {2080, 180, 0.463};
    return blocks.q == 128 ? TileCosts{3270, 24, 0.636} : TileCosts{4270, 2, 0.74};
  }
  if (blocks.q == 64) return {900, 280, 0.627};
  return blocks.q == 128 ? TileCosts{2240, 0, 0.722} : TileCosts{4000, 73, 1};
}

constexpr int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// When a launch ends whose tiles become shorter evenly, each taken by the slot that is free first.
// Slots that have a long one take a short one next: after two layers of tiles all end together, at
// twice the length in their middle.
double end_of_tiles(double longest, double shortest, double tiles_each) {
  const auto length_behind = [&](int layers) {
    return longest - (longest - shortest) * layers / tiles_each;
  };
  double end = 0;
  int layers = 0;
  for (; tiles_each > layers + 2; layers += 2) end += 2 * length_behind(layers + 1);
  const double one_more = length_behind(layers), two_more = 2 * length_behind(layers + 1);
  return end + (tiles_each > layers + 1 ? std::max(one_more, two_more) : one_more);
}

// The first block of a head lacks `missing_rows` rows.
double predicted_clocks(const Problem& p, const DeviceInfo& device, int head_dim,
                        const BlockSizes& blocks, int64_t missing_rows) {
  constexpr double kMultiplyAddsPerClock = 2048;  // per multiprocessor, 16-bit tensor cores
  const TileCosts costs = tile_costs(head_dim, blocks);
  const int64_t heads = p.batch * p.q_heads;
  const int64_t tiles = heads * divide_up(p.q_len, blocks.q);
  const int64_t multiprocessors = std::max(1, device.threads);
  const int64_t sharing = std::min<int64_t>(divide_up(tiles, multiprocessors),
                                            thread_blocks_at_once(head_dim, blocks.q));
  const double key_clocks = static_cast<double>(2 * blocks.q * head_dim * sharing) /
                            kMultiplyAddsPerClock / costs.peak_share;
  double longest = 0, shortest = std::numeric_limits<double>::infinity(), of_a_head = 0;
  for (int64_t first = -missing_rows; first < p.q_len; first += blocks.q) {
    const int64_t last = std::min(p.q_len, first + blocks.q) - 1;
    const int64_t keys =
        p.visible_keys(last).end - p.visible_keys(std::max<int64_t>(0, first)).first;
    const auto key_blocks = static_cast<double>(divide_up(keys, blocks.kv));
    const double tile =
        costs.ends + key_blocks * (costs.key_block + static_cast<double>(blocks.kv) * key_clocks);
    longest = std::max(longest, tile);
    shortest = std::min(shortest, tile);
    of_a_head += tile;
  }
  const auto slots = static_cast<double>(multiprocessors * sharing);
  const double tiles_each = static_cast<double>(tiles) / slots;
  if (p.mask != Mask::none && sharing == 1 && has_own_order(tiles_each)) {
    return std::max(longest, of_a_head * static_cast<double>(heads) / slots);
  }
  return end_of_tiles(longest, shortest, tiles_each);
}

}  // namespace

int64_t missing_rows(const Problem& p, const BlockSizes& blocks) {
  if (p.mask == Mask::none || is_by_request(p)) return 0;
  constexpr int64_t kWarpRows = 16;
  return (divide_up(p.q_len, blocks.q) * blocks.q - p.q_len) / kWarpRows * kWarpRows;
}

BlockSizes shortest_blocks(const Problem& p, const DeviceInfo& device, int head_dim,
                           std::span<const BlockSizes> candidates, const BlockSizes& long_blocks) {
  // With more tiles, the large blocks are the best, but for short requests. Blocks of 64 queries
  // are slower than predicted at long ones.
  constexpr int64_t kMostTilesEach = 8, kLongestOf64 = 2048;
  const int64_t short_request = p.mask == Mask::none ? 256 : 512;
  const Problem average = average_request(p);
  const int64_t tiles = p.batch * p.q_heads * divide_up(average.q_len, long_blocks.q);
  if (average.q_len > short_request && tiles > kMostTilesEach * device.threads) return long_blocks;
  const auto clocks_with = [&](const BlockSizes& blocks) {
    return predicted_clocks(average, device, head_dim, blocks, missing_rows(p, blocks));
  };
  BlockSizes best = long_blocks;
  double least = clocks_with(long_blocks);
  for (const BlockSizes& blocks : candidates) {
    const bool has_finer_keys =
        head_dim <= 64 && blocks.q == long_blocks.q && blocks.kv < long_blocks.kv;
    if (blocks.q >= long_blocks.q && !has_finer_keys) continue;
    if (blocks.q == 64 && average.q_len > kLongestOf64) continue;
    const double clocks = clocks_with(blocks);
    if (clocks >= least) continue;
    least = clocks;
    best = blocks;
  }
  return best;
}

}  // namespace flashbench::kernels::sm90
