// When the kernel of forward_parts.cu reads K and V once for all heads of a group.
#pragma once

#include "kernels/attention.h"

namespace flashbench::kernels::sm90 {

// Whether sm90_forward_parts takes this problem with the queries of a group in one tile of 64 rows.
bool parts_pack_group(const Problem&, const DeviceInfo&);

}  // namespace flashbench::kernels::sm90
