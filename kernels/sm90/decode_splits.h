// Chooses into how many parts sm90_decode splits the keys of a unit, from a prediction of its time.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "device/device.h"
#include "kernels/attention.h"

namespace flashbench::kernels::sm90 {

// The queries of all heads that read one K/V head, packed into rows.
inline int64_t packed_rows(const Problem& p) {
  return p.heads_per_kv_head() * p.q_len;
}

// Blocks of a unit's rows; each reads K and V for itself.
inline int64_t row_blocks(const Problem& p, const BlockSizes& blocks) {
  return (packed_rows(p) + blocks.q - 1) / blocks.q;
}

// Thread blocks per multiprocessor: those with 4 warps leave room for another, but for an O of 256
// columns.
constexpr int decode_at_once(int head_dim, int warps) {
  return warps == 4 && head_dim <= 192 ? 2 : 1;
}

// A unit's thread blocks: `clusters` of `cluster_size`, a power of two. Partial results are merged
// within a cluster through distributed shared memory, and between clusters through global memory.
struct Splits {
  int clusters = 1, cluster_size = 1;

  int count() const { return clusters * cluster_size; }
  bool operator==(const Splits&) const = default;
};

inline constexpr int kLargestCluster = 8;  // that every GPU with clusters can launch

// The predicted time in nanoseconds, without that of any launch.
double predicted_ns(const Problem&, const DeviceInfo&, const BlockSizes&, const Splits&);

// The splits with the shortest predicted time.
Splits choose_splits(const Problem&, const DeviceInfo&, const BlockSizes&);

}  // namespace flashbench::kernels::sm90
