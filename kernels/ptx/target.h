// The GPU architecture that the current pass compiles for.
#pragma once

#include <nv/target>

namespace flashbench::ptx {

// Whether sm_90 instructions are available. A source is compiled once for each architecture of the
// build, and the driver loads the code that fits the GPU. Unlike a template parameter that the host
// chooses, this can therefore never disagree with the code that runs.
__device__ constexpr bool has_sm_90() {
  NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90, (return true;), (return false;))
}

}  // namespace flashbench::ptx
