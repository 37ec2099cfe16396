#include <vector>

#include "kernels/attention.h"

namespace flashbench::kernels {

extern const AttentionKernel kCpuTiledForward, kCpuTiledBackward;

std::span<const AttentionKernel* const> all_kernels() {
  static const std::vector kernels = [] {
    std::vector list{&kCpuTiledForward, &kCpuTiledBackward};
    const auto cuda = cuda_kernels();
    list.insert(list.end(), cuda.begin(), cuda.end());
    return list;
  }();
  return kernels;
}

}  // namespace flashbench::kernels
