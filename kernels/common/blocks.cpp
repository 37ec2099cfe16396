#include "kernels/common/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace flashbench::kernels {
namespace {

constexpr TunedBlocks kTunedBlocks[] = {
#include "kernels/tuned_blocks.inc"
};

}  // namespace

int compiled_head_dim(int64_t head_dim) {
  constexpr std::array kCompiled{32, 64, 96, 128, 192, 256};
  return *std::ranges::lower_bound(kCompiled, head_dim);
}

BlockSizes choose_blocks(std::string_view family, const Problem& p, const DeviceInfo& device,
                         std::span<const BlockSizes> candidates) {
  const TunedBlocks* best = nullptr;
  for (const TunedBlocks& row : kTunedBlocks) {
    const bool fits = row.family == family && row.pass == p.pass &&
                      row.compute_capability <= device.compute_capability &&
                      row.head_dim == compiled_head_dim(p.head_dim) &&
                      row.causal == (p.mask != Mask::none) &&
                      std::ranges::find(candidates, row.blocks) != candidates.end();
    if (fits && (best == nullptr || row.compute_capability > best->compute_capability)) best = &row;
  }
  return best != nullptr ? best->blocks : candidates.front();
}

std::string describe(const BlockSizes& b) {
  return fmt::format("{}x{}, {} warps, {} stage{}{}{}", b.q, b.kv, b.warps, b.stages,
                     b.stages == 1 ? "" : "s",
                     b.cluster == 1 ? "" : fmt::format(", clusters of {}", b.cluster),
                     b.overlaps ? ", overlapped" : "");
}

}  // namespace flashbench::kernels
