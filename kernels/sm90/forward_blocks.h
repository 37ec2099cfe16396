// Chooses the block sizes of the forward kernel for Hopper.
#pragma once

#include <span>

#include "kernels/attention.h"

namespace flashbench::kernels::sm90 {

// Thread blocks per multiprocessor. One thread block with 192 or 128 queries fills a
// multiprocessor. Those with 64 queries are for short problems, where latencies dominate: several
// share a multiprocessor, so that one loads while another computes.
constexpr int thread_blocks_at_once(int head_dim, int block_q) {
  if (block_q > 64) return 1;
  return head_dim <= 64 ? 3 : 2;
}

// The rows by which the first block of queries of a head begins before its first query: a multiple
// of 16, the rows of a warp. With a causal mask the first block sees the fewest keys, so it is the
// one that lacks rows; otherwise, and by request, the last one lacks them.
int64_t missing_rows(const Problem&, const BlockSizes&);

// Returns the block sizes with the shortest predicted time: `long_blocks`, which are best for large
// problems, or one of `candidates` with fewer queries. They are compiled for `head_dim`.
BlockSizes shortest_blocks(const Problem&, const DeviceInfo&, int head_dim,
                           std::span<const BlockSizes> candidates, const BlockSizes& long_blocks);

}  // namespace flashbench::kernels::sm90
