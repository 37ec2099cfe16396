// Block sizes of the tunable GPU kernels. `flashbench tune` writes kernels/tuned_blocks.inc.
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
  int compute_capability;  // of the device on which they were timed
  Pass pass;
  int head_dim;  // see compiled_head_dim
  bool causal;
  BlockSizes blocks;
};

// Rounds up to the next of 32, 64, 96, 128, 192 and 256, for which kernels are compiled and tuned.
int compiled_head_dim(int64_t head_dim);

// Returns the candidate that the table lists for the latest architecture not newer than this
// device's, or the first candidate if the table lists none. `candidates` must not be empty.
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

// The same for a kernel that is not compiled for all of these head dimensions. The kernel fills the
// extra columns with zeros in shared memory.
template <typename Variants>
int compiled_head_dim(const Variants& variants, int64_t head_dim) {
  int smallest = kMaxHeadDim;
  for (const auto& variant : variants) {
    if (variant.head_dim >= head_dim) smallest = std::min(smallest, variant.head_dim);
  }
  return smallest;
}

// Returns the block sizes of the variants that can run this problem on this device. A variant has
// the members head_dim, shared_bytes and blocks.
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

// Returns the variant that has these block sizes and this head_dim.
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
