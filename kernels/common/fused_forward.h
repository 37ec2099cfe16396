// Host code that the fused tensor-core forward kernels share.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace flashbench::kernels {

// AttentionKernel::requested_bytes for a kernel in which each block of queries reads the keys and
// values that it sees. The first block of a head lacks its first `missing_rows` rows, or none.
int64_t fused_forward_requested_bytes(const Launch&);
int64_t fused_forward_requested_bytes(const Launch&, int64_t missing_rows);

// The number of query heads in a section (see sections.cuh), chosen so that their K and V fit the
// L2 cache. All sections have about the same size. Causal sections are larger: thread blocks start
// with the longest of a section, and they finish together only if the last section has enough of
// them.
int64_t section_heads(const Problem&, const BlockSizes&, const DeviceInfo&);

}  // namespace flashbench::kernels
