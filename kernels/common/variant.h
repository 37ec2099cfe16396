// The host's description of a fused kernel that is compiled for one head_dim and one choice of
// block sizes.
#pragma once

#include <string_view>

#include "kernels/attention.h"
#include "kernels/common/half_types.h"
#include "kernels/common/launch.h"

namespace flashbench::kernels {

// For both dtypes; see kernels/common/blocks.h.
template <typename Arguments>
struct Variant {
  int head_dim;
  BlockSizes blocks;
  int threads, shared_bytes;
  void (*fp16)(Arguments);
  void (*bf16)(Arguments);
  bool persistent = false;  // each thread block computes work items until none is left
  // Of a backward pass: how the accumulators of dQ are tiled, and the kernel that lists its work.
  bool transposes_dq = false;
  void (*lister)(Arguments) = nullptr;

  CudaKernel<Arguments> kernel(std::string_view name, Dtype dtype) const {
    return {name, for_half(dtype, fp16, bf16), threads, shared_bytes};
  }
};

}  // namespace flashbench::kernels
