#include "kernels/sm90/decode_splits.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace flashbench::kernels::sm90 {
namespace {

// Of an H200 (docs/kernel-log.md). Bytes per nanosecond: what memory delivers for each
// multiprocessor; what a warp gets through, and what a multiprocessor gets through if others are
// idle, with 16 rows and with more; those with a cache of bytes are taken to be the latter.
constexpr double kMemoryRate = 34;
constexpr double kWarpRate = 16.5, kLargestRate = 97;
constexpr double kWarpRateOfMoreRows = 11, kLargestRateOfMoreRows = 56;

// Memory delivers less if some multiprocessors do not read: by this times their share of all.
constexpr double kLossOfIdle = 0.06;

// It delivers more, by this share, to thread blocks of 4 warps, which ask for half as much at a
// time as those of 8. That counts where a thread block reads this many bytes or more.
constexpr double kGainOfFewWarps = 0.006;
constexpr double kBytesOfFewWarps = 4 << 20;

// Nanoseconds: the start and end of a thread block that others do not hide, merges in a cluster and
// in memory, and the rate at which a thread block merges partial results in memory.
constexpr double kEnds = 1200, kClusterMerge = 600, kMemoryMerge = 1600, kMergeRate = 40;

// Of a unit. Powers of two alone: twelve splits were slower than eight and than sixteen.
constexpr int kMostClusters = 16;

// In portions. A thread block has at least so many tiles: with fewer, merging takes longer than
// reading. No request is in more parts than this many by its length.
constexpr int64_t kLeastTiles = 4, kMostParts = 64;
// In how many tiles' time a thread block begins and ends a request of up to 16 rows, or of more.
constexpr int64_t kTilesOfEnds = 1, kTilesOfEndsOfMoreRows = 2;

int64_t rounded_up_quotient(int64_t dividend, int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

}  // namespace

double predicted_ns(const Problem& p, const DeviceInfo& device, const BlockSizes& blocks,
                    const Splits& splits) {
  const double multiprocessors = std::max(1, device.threads);
  const auto rows = static_cast<double>(std::min<int64_t>(packed_rows(p), blocks.q));
  const auto key_bytes =
      static_cast<double>((p.head_dim + p.value_dim()) * element_size(p.key_dtype()));
  const auto units = static_cast<double>(p.batch * p.kv_heads * row_blocks(p, blocks));
  const double thread_blocks = units * splits.count();
  const double bytes = static_cast<double>(p.seen_keys().size()) * key_bytes / splits.count();

  // A cluster runs in one of the groups of multiprocessors that a GPU consists of. They are not all
  // of a size. Where clusters fill more than this share, some have to share multiprocessors, or
  // wait.
  const double usable = (splits.cluster_size > 2 ? 0.6 : 1) * multiprocessors;
  const int at_once = decode_at_once(static_cast<int>(p.head_dim), blocks.warps);
  const double slots =
      std::max(1.0, std::floor(usable * at_once / splits.cluster_size)) * splits.cluster_size;
  const double sharing = std::min<double>(at_once, std::ceil(thread_blocks / usable));
  const bool more_rows = blocks.q > 16 || p.kv_dtype;
  const double rate = std::min((more_rows ? kLargestRateOfMoreRows : kLargestRate) / sharing,
                               (more_rows ? kWarpRateOfMoreRows : kWarpRate) * blocks.warps);
  const bool asks_for_less =
      blocks.warps == 4 && !more_rows && splits.cluster_size <= 2 && bytes >= kBytesOfFewWarps;
  const double gain = asks_for_less ? kGainOfFewWarps : 0;
  const auto wave_ns = [&](double blocks_at_once) {
    const double idle = std::max(0.0, 1 - blocks_at_once / sharing / multiprocessors);
    const double memory_rate = kMemoryRate * multiprocessors * (1 + gain - kLossOfIdle * idle);
    return std::max(blocks_at_once * bytes / memory_rate, bytes / rate) + kEnds;
  };
  const double waves = std::floor(thread_blocks / slots);
  const double rest = thread_blocks - waves * slots;
  double ns = waves * wave_ns(slots);
  if (rest > 0) ns += wave_ns(rest);
  if (splits.cluster_size > 1) ns += kClusterMerge;
  if (splits.clusters > 1) {
    const double partial_bytes = rows * static_cast<double>(p.value_dim()) * sizeof(float);
    ns += kMemoryMerge + splits.clusters * partial_bytes / splits.cluster_size / kMergeRate;
  }
  return ns;
}

Splits choose_splits(const Problem& p, const DeviceInfo& device, const BlockSizes& blocks) {
  // Every warp of every split has a tile of keys.
  const int64_t most = std::max<int64_t>(1, rounded_up_quotient(p.seen_keys().size(), blocks.kv));
  Splits best;
  double least = predicted_ns(p, device, blocks, best);
  for (int clusters = 1; clusters <= kMostClusters; clusters *= 2) {
    for (int size = 1; size <= kLargestCluster; size *= 2) {
      const Splits splits{clusters, size};
      if (splits.count() > most) break;
      const double ns = predicted_ns(p, device, blocks, splits);
      if (ns >= least) continue;
      least = ns;
      best = splits;
    }
  }
  return best;
}

PortionPlan plan_portions(const Problem& p, const DeviceInfo& device, const BlockSizes& blocks) {
  PortionPlan plan;
  plan.thread_blocks = std::max<int64_t>(1, p.kv_heads * row_blocks(p, blocks));
  const int64_t slots =
      std::max(1, device.threads) * decode_at_once(static_cast<int>(p.head_dim), blocks.warps);
  // Where the thread blocks of one portion are more than run at once, there are several waves.
  constexpr int64_t kWaves = 4;
  plan.portions = plan.thread_blocks <= slots
                      ? slots / plan.thread_blocks
                      : rounded_up_quotient(kWaves * slots, plan.thread_blocks);
  const int64_t longest = rounded_up_quotient(p.kv_len, blocks.kv);
  plan.tiles = std::max(kLeastTiles, rounded_up_quotient(longest, kMostParts));
  plan.tiles_of_ends = blocks.q > 16 ? kTilesOfEndsOfMoreRows : kTilesOfEnds;
  const int64_t most_tiles = p.batch * (std::max<int64_t>(1, longest) + plan.tiles_of_ends);
  plan.portions = std::min(plan.portions, rounded_up_quotient(most_tiles, plan.tiles));
  plan.portions_at_once = plan.most_portions = plan.portions;
  return plan;
}

PortionPlan plan_batch_invariant_portions(const Problem& p, const DeviceInfo& device,
                                          const BlockSizes& blocks) {
  PortionPlan plan = plan_portions(p, device, blocks);
  plan.portions = 0;
  plan.tiles = kBatchInvariantKeys / blocks.kv;
  plan.most_portions =
      p.batch * std::max<int64_t>(1, rounded_up_quotient(p.kv_len, kBatchInvariantKeys));
  plan.portions_at_once = std::min(plan.portions_at_once, plan.most_portions);
  return plan;
}

PortionAccount account_of_portions(const Problem& p, const BlockSizes& blocks,
                                   const PortionPlan& plan) {
  const auto tiles_of = [&](const Problem& request) {
    if (request.q_len == 0) return int64_t{0};
    return std::max<int64_t>(1, rounded_up_quotient(request.seen_keys().size(), blocks.kv));
  };
  const auto time_of = [&](int64_t tiles) {
    if (tiles == 0) return int64_t{0};
    if (plan.portions > 0) return tiles + plan.tiles_of_ends;
    return rounded_up_quotient(tiles, plan.tiles) * plan.tiles;
  };
  const int64_t all =
      p.sum_of_requests([&](const Problem& request) { return time_of(tiles_of(request)); });
  int64_t portion = plan.tiles;
  if (plan.portions > 0) portion = std::max(portion, rounded_up_quotient(all, plan.portions));

  PortionAccount account;
  std::map<int64_t, int64_t> tiles_in;  // each portion
  int64_t begin = 0, all_tiles = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t tiles = tiles_of(p.request(b));
    if (tiles == 0) continue;
    const int64_t first = begin / portion, last = (begin + tiles - 1) / portion;
    for (int64_t i = first; i <= last; ++i) {
      const int64_t from = i == first ? 0 : i * portion - begin;
      tiles_in[i] += (i == last ? tiles : (i + 1) * portion - begin) - from;
    }
    if (last > first) account.parts_in_memory += last - first + 1;
    account.most_parts = std::max(account.most_parts, last - first + 1);
    all_tiles += tiles;
    begin += time_of(tiles);
  }
  int64_t longest = 0;
  for (const auto& [number, tiles] : tiles_in) longest = std::max(longest, tiles);
  account.portions = static_cast<int64_t>(tiles_in.size());
  if (all_tiles > 0) {
    account.imbalance = static_cast<double>(longest) * static_cast<double>(account.portions) /
                        static_cast<double>(all_tiles);
  }
  return account;
}

}  // namespace flashbench::kernels::sm90
