// Block sizes of the GPU kernels that can be tuned: kernels/tuned_blocks.inc, written by
// `flashbench tune`.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/attention.h"

namespace flashbench::kernels {

// The best block sizes found for one kind of problem on one architecture.
struct TunedBlocks {
  std::string_view family;
  int compute_capability;  // of the device that they were timed on
  Pass pass;
  int head_dim;  // see compiled_head_dim
  bool causal;
  BlockSizes blocks;
};

// The next of 32, 64, 96, 128, 192, 256: those that kernels are tuned at, and compiled for.
int compiled_head_dim(int64_t head_dim);

// Of `candidates`, the one that the table names for the latest architecture up to this device's;
// the first, if the table names none of them. There must be one.
BlockSizes choose_blocks(std::string_view family, const Problem&, const DeviceInfo&,
                         std::span<const BlockSizes> candidates);

// Calls body.operator()<N>() for the compiled head_dim N that runs this head_dim.
template <typename Body>
auto with_compiled_head_dim(int64_t head_dim, const Body& body) {
  switch (compiled_head_dim(head_dim)) {
    case 32:
      return body.template operator()<32>();
    case 64:
      return body.template operator()<64>();
    case 96:
      return body.template operator()<96>();
    case 128:
      return body.template operator()<128>();
    case 192:
      return body.template operator()<192>();
    default:
      return body.template operator()<256>();
  }
}

// The compiled head_dim of a kernel that is not compiled for all of them. The columns between are
// filled with zeros in shared memory.
template <typename Variants>
int compiled_head_dim(const Variants& variants, int64_t head_dim) {
  int smallest = kMaxHeadDim;
  for (const auto& variant : variants) {
    if (variant.head_dim >= head_dim) smallest = std::min(smallest, variant.head_dim);
  }
  return smallest;
}

// The blocks of those variants that run this problem and fit this device. A variant has its
// head_dim, shared_bytes and blocks.
template <typename Variants>
std::vector<BlockSizes> fitting_blocks(const Variants& variants, const Problem& p,
                                       const DeviceInfo& device) {
  std::vector<BlockSizes> fitting;
  for (const auto& variant : variants) {
    if (variant.head_dim == compiled_head_dim(variants, p.head_dim) &&
        variant.shared_bytes <= device.shared_memory_bytes) {
      fitting.push_back(variant.blocks);
    }
  }
  return fitting;
}

// The variant of this kernel with these blocks for this head_dim.
template <typename Variants>
const auto& variant_at(const Variants& variants, const Launch& at) {
  return *std::ranges::find_if(variants, [&](const auto& variant) {
    return variant.head_dim == compiled_head_dim(variants, at.problem.head_dim) &&
           variant.blocks == at.blocks;
  });
}

// E.g. "128x64, 4 warps, 2 stages".
std::string describe(const BlockSizes&);

}  // namespace flashbench::kernels
