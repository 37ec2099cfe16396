// Which blocks the forward kernel for Hopper takes for a problem.
#pragma once

#include <span>

#include "kernels/attention.h"

namespace flashbench::kernels::sm90 {

// Thread blocks of a multiprocessor. Blocks of 192 or 128 queries fill one. Those of 64 are for
// short problems, where latencies rule: several share one, so that one loads while another
// computes.
constexpr int thread_blocks_at_once(int head_dim, int block_q) {
  if (block_q > 64) return 1;
  return head_dim <= 64 ? 3 : 2;
}

// The blocks with the shortest predicted time: `long_blocks`, which are best for long problems, or
// those of 64 queries among `candidates`.
BlockSizes shortest_blocks(const Problem&, const DeviceInfo&,
                           std::span<const BlockSizes> candidates, const BlockSizes& long_blocks);

}  // namespace flashbench::kernels::sm90
