// Host code that the fused tensor-core forward kernels share.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/attention.h"
#include "kernels/common/sections.cuh"

namespace flashbench::kernels {

// AttentionKernel::requested_bytes for a kernel in which each block of queries reads the keys and
// values that it sees. The first block of a head lacks its first `missing_rows` rows, which follow
// from the request's q_len, or none.
int64_t fused_forward_requested_bytes(const Launch&);
int64_t fused_forward_requested_bytes(const Launch&,
                                      const std::function<int64_t(int64_t)>& missing_rows);

// The number of query heads in a section (see sections.cuh), chosen so that their K and V fit the
// L2 cache. All sections have about the same size. Causal sections are larger: thread blocks start
// with the longest of a section, and they finish together only if the last section has enough of
// them: two for each multiprocessor, which together take as long as the longest, on average.
int64_t section_heads(const Problem&, const BlockSizes&, const DeviceInfo&);

// The order of the tiles of a launch whose thread blocks, as many as `at_once`, take a tile when
// they are done with the one before, and end together. With a causal mask the first tiles are the
// longest, which is the best order if there are many. Of two or three for each thread block, most
// would have two of about the same sum, and some a third. So only some begin with the longest, the
// others with short ones, and all have a middle one in between.
ItemOrder tile_order(const Problem&, int64_t tiles, int64_t section_heads, int64_t at_once);

// Whether this order is another than that of lengths, with a causal mask and all heads in a
// section.
constexpr bool has_own_order(double tiles_each) {
  return tiles_each >= 2.1 && tiles_each <= 3.1;
}

}  // namespace flashbench::kernels
