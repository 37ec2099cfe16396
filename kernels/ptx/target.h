// Which GPU a piece of code is being compiled for.
#pragma once

#include <nv/target>

namespace flashbench::ptx {

// Whether the instructions that came with sm_90 are there. A source is compiled once for each
// architecture of the build, and the driver takes what fits the GPU: so this, unlike a template
// parameter that the host chooses, cannot differ from what is running.
__device__ constexpr bool has_sm_90() {
  NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90, (return true;), (return false;))
}

}  // namespace flashbench::ptx
