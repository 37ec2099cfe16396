#include "kernels/sm90/forward_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/common/fused_forward.h"
#include "kernels/common/requests.h"
#include "kernels/sm90/consumer_rows.h"

namespace flashbench::kernels::sm90 {
namespace {

// Costs in clocks: of a thread block's first tile (a block of queries of one head), before which
// nothing was loaded ahead; of each tile, to start and to end it; and of each block of keys; and
// the share of the tensor cores' peak that its products reach. They are fitted together, to choose
// the fastest blocks in problems of length 77 to 16,384 (docs/kernel-log.md): a single one is no
// measurement. Where `first` is 0, `ends` was fitted without it.
struct TileCosts {
  double first, ends, key_block, peak_share;
};

TileCosts tile_costs(int64_t head_dim, const BlockSizes& blocks) {
  if (head_dim <= 64) {
    if (blocks.q == 64) return {2150, 1360, 240, 0.6};
    if (blocks.q == 128) return {4520, 3080, 170, 0.587};
    return blocks.kv == 64 ? TileCosts{720, 2290, 270, 0.67} : TileCosts{3260, 3260, 280, 0.681};
  }
  // Not fitted: there is nothing to choose but whether keys are in parts.
  if (head_dim > 128) return {0, 3000, 60, 0.93};
  if (head_dim <= 80) {
    if (blocks.q == 64) return {0, 2080, 180, 0.463};
    return blocks.q == 128 ? TileCosts{0, 3270, 24, 0.636} : TileCosts{0, 4270, 2, 0.74};
  }
  if (blocks.q == 64) return {1830, 2840, 270, 0.565};
  if (blocks.q == 128) {
    return blocks.overlaps ? TileCosts{2890, 5090, 270, 0.791} : TileCosts{3040, 2980, 260, 0.691};
  }
  return blocks.kv == 64 ? TileCosts{1020, 4220, 180, 0.843} : TileCosts{1150, 3600, 190, 0.815};
}

// The same of blocks whose keys are in parts, fitted with the costs in shortest_parts() to 8,300
// problems of 8 to 4,096 queries and 128 to 65,536 keys (docs/kernel-log.md, forward 71).
TileCosts tile_costs_in_parts(int64_t head_dim, const BlockSizes& blocks) {
  if (head_dim <= 64) {
    if (blocks.q == 64) return {0, 340, 540, 0.772};
    return blocks.q == 128 ? TileCosts{0, 1400, 460, 0.69} : TileCosts{0, 4230, 290, 0.755};
  }
  if (head_dim <= 96) {
    if (blocks.q == 64) return {0, 2650, 490, 0.749};
    return blocks.q == 128 ? TileCosts{0, 4390, 77, 0.684} : TileCosts{0, 4220, 240, 0.825};
  }
  if (head_dim <= 128) {
    if (blocks.q == 64) return {0, 2580, 930, 0.879};
    return blocks.q == 128 ? TileCosts{0, 6510, 72, 0.747} : TileCosts{0, 8000, 220, 0.89};
  }
  return head_dim <= 192 ? TileCosts{0, 2550, 50, 0.805} : TileCosts{0, 1870, 130, 0.829};
}

constexpr int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t tiles_of(const Problem& p, const BlockSizes& blocks) {
  return p.batch * p.q_heads * divide_up(p.q_len, blocks.q);
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

// The first block of a head lacks `missing_rows` rows, and tiles may be in pieces. Of tiles in
// parts, without their merge.
double predicted_clocks(const Problem& p, const DeviceInfo& device, int head_dim,
                        const BlockSizes& blocks, int64_t missing_rows, const LastWave& in_pieces,
                        int64_t parts = 1) {
  constexpr double kMultiplyAddsPerClock = 2048;  // per multiprocessor, 16-bit tensor cores
  const TileCosts costs =
      parts == 1 ? tile_costs(head_dim, blocks) : tile_costs_in_parts(head_dim, blocks);
  const int64_t heads = p.batch * p.q_heads;
  const int64_t tiles = tiles_of(p, blocks) * parts;
  const int64_t multiprocessors = std::max(1, device.threads);
  const int64_t sharing = std::min<int64_t>(divide_up(tiles, multiprocessors),
                                            thread_blocks_at_once(head_dim, blocks.q));
  // A warpgroup alone on a multiprocessor either multiplies or computes exponentials: it takes as
  // long as two that share one. The fitted costs of short problems and of parts include that.
  constexpr int64_t kLongKeys = 2048;
  const bool alone = sharing == 1 && blocks.q == 64 && p.kv_len > kLongKeys && parts == 1;
  const double key_clocks = static_cast<double>(2 * blocks.q * head_dim * (alone ? 2 : sharing)) /
                            kMultiplyAddsPerClock / costs.peak_share;
  const bool alike = !p.is_masked();  // all tiles, as long as the first
  double longest = 0, shortest = std::numeric_limits<double>::infinity(), of_a_head = 0;
  for (int64_t first = -missing_rows; first < p.q_len; first += blocks.q) {
    const int64_t last = std::min(p.q_len, first + blocks.q) - 1;
    const int64_t keys =
        p.visible_keys(last).end - p.visible_keys(std::max<int64_t>(0, first)).first;
    const auto key_blocks = static_cast<double>(divide_up(divide_up(keys, blocks.kv), parts));
    const double tile =
        costs.ends + key_blocks * (costs.key_block + static_cast<double>(blocks.kv) * key_clocks);
    longest = std::max(longest, tile);
    shortest = std::min(shortest, tile);
    of_a_head += static_cast<double>(parts) * tile;
    if (alike) {
      of_a_head *= static_cast<double>(divide_up(p.q_len, blocks.q));
      break;
    }
  }
  const auto slots = static_cast<double>(multiprocessors * sharing);
  const double tiles_each = static_cast<double>(tiles) / slots;
  if (p.mask != Mask::none && parts == 1 && sharing == 1 && has_own_order(tiles_each)) {
    // Some slot has no fewer tiles than the average, even if they are the shortest.
    return costs.first + std::max({longest, of_a_head * static_cast<double>(heads) / slots,
                                   std::ceil(tiles_each) * shortest});
  }
  if (in_pieces.items > 0) {
    const auto key_blocks = static_cast<double>(divide_up(p.kv_len, blocks.kv));
    return costs.first + longest * (std::floor(tiles_each) + in_pieces.time / key_blocks);
  }
  return costs.first + end_of_tiles(longest, shortest, tiles_each);
}

// Of whole tiles, and the last ones in pieces. `average` is the average request of `p`.
double clocks_of_whole_tiles(const Problem& p, const Problem& average, const DeviceInfo& device,
                             int head_dim, const BlockSizes& blocks) {
  return predicted_clocks(average, device, head_dim, blocks, missing_rows(p, blocks, average.q_len),
                          split_last_wave(p, device, head_dim, blocks).last);
}

// The share of their waves that whole tiles fill.
double filled_share(const Problem& p, const DeviceInfo& device, int head_dim,
                    const BlockSizes& blocks) {
  const int64_t tiles = tiles_of(p, blocks);
  const int64_t at_once = thread_blocks_of_device(device, head_dim, blocks.q);
  return static_cast<double>(tiles) / static_cast<double>(divide_up(tiles, at_once) * at_once);
}

// The problem as tiles of packed heads have it: one query head for each K/V head, with all queries.
// None if heads are not packed: where requests differ, and where the mask leaves a query much less
// than it leaves others, since a tile has all of them.
std::optional<Problem> with_packed_heads(const Problem& p) {
  if (p.lengths || p.heads_per_kv_head() == 1 || 8 * p.q_len > p.kv_len) return std::nullopt;
  Problem packed = p;
  packed.q_len = p.heads_per_kv_head() * rows_of_packed_head(p.q_len);
  packed.q_heads = p.kv_heads;
  packed.mask = Mask::none;
  return packed;
}

}  // namespace

int64_t thread_blocks_of_device(const DeviceInfo& device, int head_dim, int block_q) {
  return device.threads * thread_blocks_at_once(head_dim, block_q);
}

int64_t missing_rows(const Problem& p, const BlockSizes& blocks, int64_t q_len) {
  const int64_t missing = divide_up(q_len, blocks.q) * blocks.q - q_len;
  if (is_by_request(p)) return missing / kConsumerRows * kConsumerRows;
  return p.mask == Mask::none ? 0 : missing / kWarpRows * kWarpRows;
}

SplitTiles split_last_wave(const Problem& p, const DeviceInfo& device, int head_dim,
                           const BlockSizes& blocks) {
  constexpr int kLeastRows = 128;  // of variants in pieces
  if (is_by_request(p) || p.is_masked() || blocks.q < kLeastRows) return {};
  const int64_t tiles = tiles_of(p, blocks);
  const int64_t at_once = thread_blocks_of_device(device, head_dim, blocks.q);
  if (tiles < at_once) return {};
  return split_tiles(tiles, at_once, p.kv_len, blocks, head_dim);
}

int64_t requested_bytes_of_tiles(const Launch& at) {
  return fused_forward_requested_bytes(
      at, [&](int64_t q_len) { return missing_rows(at.problem, at.blocks, q_len); });
}

BlockSizes shortest_blocks(const Problem& p, const DeviceInfo& device, int head_dim,
                           std::span<const BlockSizes> candidates, const BlockSizes& long_blocks) {
  // With more tiles, the large blocks are the best, but for short requests. Blocks of 64 queries
  // are slower than predicted at long ones.
  constexpr int64_t kMostTilesEach = 8, kLongestOf64 = 2048;
  const int64_t short_request = p.mask == Mask::none ? 256 : 512;
  const Problem average = average_request(p);
  if (average.q_len > short_request &&
      tiles_of(average, long_blocks) > kMostTilesEach * device.threads) {
    return long_blocks;
  }
  const auto clocks_with = [&](const BlockSizes& blocks) {
    return clocks_of_whole_tiles(p, average, device, head_dim, blocks);
  };
  BlockSizes best = long_blocks;
  double least = clocks_with(long_blocks);
  for (const BlockSizes& blocks : candidates) {
    if (blocks.q > long_blocks.q || (blocks.q == long_blocks.q && head_dim > 128)) continue;
    if (blocks.q == 64 && average.q_len > kLongestOf64) continue;
    const double clocks = clocks_with(blocks);
    if (clocks >= least) continue;
    least = clocks;
    best = blocks;
  }
  return best;
}

KeyParts shortest_parts(const Problem& p, const DeviceInfo& device, int head_dim,
                        std::span<const BlockSizes> candidates,
                        std::span<const BlockSizes> in_pairs, int head_dim_of_whole,
                        const BlockSizes& whole) {
  // A second launch, and O in fp32, which is written and read; or merging in a pair.
  constexpr double kClocksOfLaunch = 4700, kBytesPerClock = 2900, kClocksOfPair = 8900;
  constexpr int64_t kLeastKeysOfPairs = 2048;  // with fewer, pairs were not timed
  constexpr double kLeastGain = 1.06;
  constexpr int64_t kMostWaves = 8;  // more fill the last one little better
  const Problem average = average_request(p);
  const auto bytes_of_part =
      static_cast<double>(2 * average.batch * average.q_heads * average.q_len * p.head_dim) *
      sizeof(float);
  const double clocks_of_whole =
      clocks_of_whole_tiles(p, average, device, head_dim_of_whole, whole);
  // Parts of the same rows gain what whole tiles leave idle.
  const bool leaves_idle =
      kLeastGain * filled_share(average, device, head_dim_of_whole, whole) <= 1;
  double least = clocks_of_whole / kLeastGain;
  KeyParts best{whole};
  const std::optional<Problem> packed = with_packed_heads(p);
  for (const BlockSizes& blocks : candidates) {
    const bool packs = packed && tiles_of(*packed, blocks) < tiles_of(average, blocks);
    const Problem& rows = packs ? *packed : average;
    if (blocks.q == whole.q && !packs && !leaves_idle) continue;
    const int64_t tiles = tiles_of(rows, blocks), key_blocks = divide_up(average.kv_len, blocks.kv);
    const int64_t at_once = thread_blocks_of_device(device, head_dim, blocks.q);
    // One thread block of 64 rows to a multiprocessor waits for memory most of the time.
    const bool fits_in_pairs = average.kv_len >= kLeastKeysOfPairs &&
                               std::ranges::count(in_pairs, blocks) > 0 && 2 * tiles <= at_once &&
                               (blocks.q > 64 || 2 * tiles > device.threads);
    // In several waves blocks of 64 queries are slower than predicted.
    const int64_t parts_of_waves =
        blocks.q == 64 ? at_once / tiles : divide_up(kMostWaves * at_once, tiles);
    const int64_t most_parts = std::min({kMostKeyParts, key_blocks, parts_of_waves});
    for (int64_t parts = 2; parts <= most_parts; ++parts) {
      const bool in_pair = parts == 2 && fits_in_pairs;
      const double clocks_of_merge =
          in_pair ? kClocksOfPair
                  : kClocksOfLaunch + static_cast<double>(parts) * bytes_of_part / kBytesPerClock;
      const double clocks =
          predicted_clocks(rows, device, head_dim, blocks, 0, {}, parts) + clocks_of_merge;
      if (clocks >= least) continue;
      least = clocks;
      best = {blocks, parts, packs, in_pair};
    }
  }
  return best;
}

}  // namespace flashbench::kernels::sm90
