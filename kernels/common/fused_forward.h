// What the tensor-core kernels of the fused forward pass have in common on the host.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace flashbench::kernels {

// AttentionKernel::requested_bytes of a kernel whose blocks of queries each read K and V as far as
// they see them.
int64_t fused_forward_requested_bytes(const Launch&);

// How many query heads' thread blocks are mixed, so that their K and V share the L2 cache. Sections
// are as even as can be. Causal ones are larger: thread blocks start with the longest of a section,
// and end together if the last section has enough of them.
int64_t section_heads(const Problem&, const BlockSizes&, const DeviceInfo&);

}  // namespace flashbench::kernels
