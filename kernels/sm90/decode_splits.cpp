#include "kernels/sm90/decode_splits.h"

#include <algorithm>
#include <cmath>

namespace flashbench::kernels::sm90 {
namespace {

// Of an H200 (docs/kernel-log.md). Bytes per nanosecond: what memory delivers for each
// multiprocessor; what a warp gets through, and what a multiprocessor gets through if others are
// idle, with 16 rows and with more.
constexpr double kMemoryRate = 34;
constexpr double kWarpRate = 16.5, kLargestRate = 97;
constexpr double kWarpRateOfMoreRows = 11, kLargestRateOfMoreRows = 56;

// Nanoseconds: the start and end of a thread block that others do not hide, merges in a cluster and
// in memory, and the rate at which a thread block merges partial results in memory.
constexpr double kEnds = 1200, kClusterMerge = 600, kMemoryMerge = 1600, kMergeRate = 40;

// Of a unit. Powers of two alone: twelve splits were slower than eight and than sixteen.
constexpr int kMostClusters = 16;

// The time in which thread blocks at once read `bytes` each.
double reading_ns(double thread_blocks, double bytes, double memory_rate, double rate) {
  return std::max(thread_blocks * bytes / memory_rate, bytes / rate);
}

int64_t seen_keys(const Problem& p) {
  return p.visible_keys(p.q_len - 1).end;
}

}  // namespace

double predicted_ns(const Problem& p, const DeviceInfo& device, const BlockSizes& blocks,
                    const Splits& splits) {
  const double multiprocessors = std::max(1, device.threads);
  const auto rows = static_cast<double>(std::min<int64_t>(packed_rows(p), blocks.q));
  const double key_bytes = 2.0 * static_cast<double>(p.head_dim * element_size(p.dtype));
  const auto units = static_cast<double>(p.batch * p.kv_heads * row_blocks(p, blocks));
  const double thread_blocks = units * splits.count();
  const double bytes = static_cast<double>(seen_keys(p)) * key_bytes / splits.count();

  // A cluster runs in one of the groups of multiprocessors that a GPU consists of. They are not all
  // of a size. Where clusters fill more than this share, some have to share multiprocessors, or
  // wait.
  const double usable = (splits.cluster_size > 2 ? 0.6 : 1) * multiprocessors;
  const int at_once = decode_at_once(static_cast<int>(p.head_dim), blocks.warps);
  const double slots =
      std::max(1.0, std::floor(usable * at_once / splits.cluster_size)) * splits.cluster_size;
  const double sharing = std::min<double>(at_once, std::ceil(thread_blocks / usable));
  const bool more_rows = blocks.q > 16;
  const double rate = std::min((more_rows ? kLargestRateOfMoreRows : kLargestRate) / sharing,
                               (more_rows ? kWarpRateOfMoreRows : kWarpRate) * blocks.warps);
  const double memory_rate = kMemoryRate * multiprocessors;
  const double waves = std::floor(thread_blocks / slots);
  const double rest = thread_blocks - waves * slots;
  double ns = waves * (reading_ns(slots, bytes, memory_rate, rate) + kEnds);
  if (rest > 0) ns += reading_ns(rest, bytes, memory_rate, rate) + kEnds;
  if (splits.cluster_size > 1) ns += kClusterMerge;
  if (splits.clusters > 1) {
    const double partial_bytes = rows * static_cast<double>(p.head_dim) * sizeof(float);
    ns += kMemoryMerge + splits.clusters * partial_bytes / splits.cluster_size / kMergeRate;
  }
  return ns;
}

Splits choose_splits(const Problem& p, const DeviceInfo& device, const BlockSizes& blocks) {
  // Every warp of every split has a tile of keys.
  const int64_t most = std::max<int64_t>(1, (seen_keys(p) + blocks.kv - 1) / blocks.kv);
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

}  // namespace flashbench::kernels::sm90
