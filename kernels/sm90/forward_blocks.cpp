#include "kernels/sm90/forward_blocks.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/blocks.h"
#include "kernels/common/requests.h"

namespace flashbench::kernels::sm90 {
namespace {

// The costs of a tile (a block of queries of one head) in clocks: to start and to end it, and for
// each block of keys; and the share of the tensor cores' peak that its products reach. Fitted to 84
// problems of length 16 to 512 on an H200 (docs/kernel-log.md).
struct TileCosts {
  double ends, key_block, peak_share;
};

TileCosts tile_costs(int64_t head_dim, const BlockSizes& blocks) {
  const bool small = head_dim <= 64;
  if (blocks.q == 64) return small ? TileCosts{3000, 300, 0.46} : TileCosts{4000, 300, 0.60};
  return small ? TileCosts{4500, 700, 0.74} : TileCosts{8000, 0, 0.94};
}

constexpr int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The first block of a head lacks `missing_rows` rows.
double predicted_clocks(const Problem& p, const DeviceInfo& device, const BlockSizes& blocks,
                        int64_t missing_rows) {
  constexpr double kMultiplyAddsPerClock = 2048;  // per multiprocessor, 16-bit tensor cores
  const TileCosts costs = tile_costs(p.head_dim, blocks);
  const int64_t heads = p.batch * p.q_heads;
  const int64_t tiles = heads * divide_up(p.q_len, blocks.q);
  const int64_t multiprocessors = std::max(1, device.threads);
  const int64_t sharing =
      std::min<int64_t>(divide_up(tiles, multiprocessors),
                        thread_blocks_at_once(compiled_head_dim(p.head_dim), blocks.q));
  const double key_clocks = static_cast<double>(2 * blocks.q * p.head_dim * sharing) /
                            kMultiplyAddsPerClock / costs.peak_share;
  double longest = 0, of_a_head = 0;
  for (int64_t first = -missing_rows; first < p.q_len; first += blocks.q) {
    const int64_t last = std::min(p.q_len, first + blocks.q) - 1;
    const int64_t keys =
        p.visible_keys(last).end - p.visible_keys(std::max<int64_t>(0, first)).first;
    const auto key_blocks = static_cast<double>(divide_up(keys, blocks.kv));
    const double tile =
        costs.ends + key_blocks * (costs.key_block + static_cast<double>(blocks.kv) * key_clocks);
    longest = std::max(longest, tile);
    of_a_head += tile;
  }
  const auto slots = static_cast<double>(multiprocessors * sharing);
  // Tiles of equal length run in waves. With a mask the shorter ones come last and fill the gaps.
  if (p.mask == Mask::none) return std::ceil(static_cast<double>(tiles) / slots) * longest;
  if (static_cast<double>(tiles) <= slots) return longest;
  return of_a_head * static_cast<double>(heads) / slots + 0.4 * longest;
}

}  // namespace

int64_t missing_rows(const Problem& p, const BlockSizes& blocks) {
  if (p.mask == Mask::none || is_by_request(p)) return 0;
  constexpr int64_t kWarpRows = 16;
  return (divide_up(p.q_len, blocks.q) * blocks.q - p.q_len) / kWarpRows * kWarpRows;
}

BlockSizes shortest_blocks(const Problem& p, const DeviceInfo& device,
                           std::span<const BlockSizes> candidates, const BlockSizes& long_blocks) {
  constexpr int64_t kLongest = 4096;  // longest q_len that needs the prediction
  const Problem average = average_request(p);
  if (average.q_len > kLongest) return long_blocks;
  const auto clocks_with = [&](const BlockSizes& blocks) {
    return predicted_clocks(average, device, blocks, missing_rows(p, blocks));
  };
  BlockSizes best = long_blocks;
  double least = clocks_with(long_blocks);
  for (const BlockSizes& blocks : candidates) {
    if (blocks.q != 64) continue;
    const double clocks = clocks_with(blocks);
    if (clocks >= least) continue;
    least = clocks;
    best = blocks;
  }
  return best;
}

}  // namespace flashbench::kernels::sm90
