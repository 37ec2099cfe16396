#include <array>

#include "kernels/attention.h"

namespace flashbench::kernels {

extern const AttentionKernel kCpuTiledForward, kCpuTiledBackward;

std::span<const AttentionKernel* const> all_kernels() {
  static constexpr std::array kKernels{&kCpuTiledForward, &kCpuTiledBackward};
  return kKernels;
}

}  // namespace flashbench::kernels
