// Chooses the block sizes of the forward kernel for Hopper.
#pragma once

#include <span>

#include "kernels/attention.h"
#include "kernels/sm90/forward_pieces.h"

namespace flashbench::kernels::sm90 {

// Thread blocks per multiprocessor. One thread block with 192 or 128 queries fills a
// multiprocessor. Those with 64 queries are for short problems, where latencies dominate: several
// share a multiprocessor, so that one loads while another computes.
constexpr int thread_blocks_at_once(int head_dim, int block_q) {
  if (block_q > 64) return 1;
  return head_dim <= 64 ? 3 : 2;
}

// Those of a whole device.
int64_t thread_blocks_of_device(const DeviceInfo&, int head_dim, int block_q);

// The rows by which the first block of queries of a head begins before its first query, in a
// request with so many. With a causal mask the first block sees the fewest keys, so it is the one
// that lacks rows: a multiple of 16, the rows of a warp, or by request of 64, those of a consumer.
int64_t missing_rows(const Problem&, const BlockSizes&, int64_t q_len);

// The tiles that are in pieces: those of equal lengths without a mask, which all have as many keys.
// Where they are too few for a GPU, forward_parts.cu divides the keys of all.
SplitTiles split_last_wave(const Problem&, const DeviceInfo&, int head_dim, const BlockSizes&);

// What whole tiles request from memory.
int64_t requested_bytes_of_tiles(const Launch&);

// Returns the block sizes with the shortest predicted time: `long_blocks`, which are best for large
// problems, or one of `candidates` with fewer queries, or up to head_dim 128 with other keys. They
// are compiled for `head_dim`.
BlockSizes shortest_blocks(const Problem&, const DeviceInfo&, int head_dim,
                           std::span<const BlockSizes> candidates, const BlockSizes& long_blocks);

// How many parts the keys of each tile are divided into, for thread blocks to share; the block
// sizes; whether the query heads of a K/V head are packed; and whether the thread blocks of two
// parts form a pair, which merges them, in place of a second launch.
struct KeyParts {
  BlockSizes blocks;
  int64_t parts = 1;
  bool packs_heads = false;
  bool in_pairs = false;
};
inline constexpr int64_t kMostKeyParts = 64;

// Returns those with the shortest predicted time; one part if more are not worth it, compared with
// `whole`, the blocks of the kernel that divides no keys. `head_dim` is what each is compiled for.
// Those of `candidates` that are `in_pairs`, too, can be merged in pairs.
KeyParts shortest_parts(const Problem&, const DeviceInfo&, int head_dim,
                        std::span<const BlockSizes> candidates,
                        std::span<const BlockSizes> in_pairs, int head_dim_of_whole,
                        const BlockSizes& whole);

// The rows that each of the heads that are packed has. Each 8 rows, which TMA copies, are of one.
constexpr int64_t rows_of_packed_head(int64_t q_len) {
  return (q_len + 7) / 8 * 8;
}

}  // namespace flashbench::kernels::sm90
