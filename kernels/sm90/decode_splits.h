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

// The splits with the shortest predicted time, for equal lengths.
Splits choose_splits(const Problem&, const DeviceInfo&, const BlockSizes&);

// How a batch's tiles of keys are divided where requests have lengths of their own, from the shapes
// and the longest lengths alone (see Portions in decode_portions.cuh).
struct PortionPlan {
  int64_t thread_blocks = 1;     // of a portion: one for each K/V head and block of rows
  int64_t portions_at_once = 1;  // that thread blocks are launched for
  int64_t portions = 0;          // 0: as many as there are, each of `tiles`, of one request
  int64_t tiles = 1;             // of a portion, at least
  int64_t tiles_of_ends = 0;     // see DecodeArguments
  int64_t most_portions = 1;     // that lengths up to the longest can make

  // A portion of several requests begins with part of a unit and ends with part of another.
  int64_t part_slots() const { return portions == 0 ? 1 : 2; }

  bool operator==(const PortionPlan&) const = default;
};
PortionPlan plan_portions(const Problem&, const DeviceInfo&, const BlockSizes&);

// The same whatever the batch: every kBatchInvariantKeys keys of a request are a portion.
inline constexpr int64_t kBatchInvariantKeys = 1024;
PortionPlan plan_batch_invariant_portions(const Problem&, const DeviceInfo&, const BlockSizes&);

// How portions divide the keys of these requests. For an account, because it follows from the
// lengths of single requests.
struct PortionAccount {
  int64_t parts_in_memory = 0;  // those of units that have several
  int64_t most_parts = 1;       // of a unit
  int64_t portions = 0;         // that have tiles
  double imbalance = 1;         // the tiles of the longest portion, over their mean
};
PortionAccount account_of_portions(const Problem&, const BlockSizes&, const PortionPlan&);

}  // namespace flashbench::kernels::sm90
