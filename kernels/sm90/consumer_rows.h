// The rows of a block that a consumer and each of its warps have, for kernels and for choices on
// the host.
#pragma once

namespace flashbench::kernels::sm90 {

inline constexpr int kConsumerRows = 64;  // M of one wgmma
inline constexpr int kWarpRows = 16;

}  // namespace flashbench::kernels::sm90
