// The kernels for GPUs in a build without CUDA.
#include "kernels/attention.h"

namespace flashbench::kernels {

std::span<const AttentionKernel* const> cuda_kernels() {
  return {};
}

}  // namespace flashbench::kernels
