#include "kernels/sm80/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace flashbench::kernels::sm80 {
namespace {

// Rows of 80 are those of 90, which was timed (H200): none of compute capability 8.x was at hand.
constexpr std::array kTunedBlocks{
    TunedBlocks{80, Pass::forward, 32, false, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{80, Pass::forward, 32, true, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{80, Pass::forward, 64, false, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{80, Pass::forward, 64, true, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{80, Pass::forward, 96, false, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{80, Pass::forward, 96, true, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{80, Pass::forward, 128, false, {.q = 128, .kv = 64, .warps = 4, .stages = 1}},
    TunedBlocks{80, Pass::forward, 128, true, {.q = 128, .kv = 64, .warps = 4, .stages = 1}},
    TunedBlocks{80, Pass::forward, 192, false, {.q = 64, .kv = 64, .warps = 4, .stages = 1}},
    TunedBlocks{80, Pass::forward, 192, true, {.q = 64, .kv = 64, .warps = 4, .stages = 1}},
    TunedBlocks{80, Pass::forward, 256, false, {.q = 64, .kv = 64, .warps = 4, .stages = 1}},
    TunedBlocks{80, Pass::forward, 256, true, {.q = 64, .kv = 64, .warps = 4, .stages = 1}},
    TunedBlocks{90, Pass::forward, 32, false, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{90, Pass::forward, 32, true, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{90, Pass::forward, 64, false, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{90, Pass::forward, 64, true, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{90, Pass::forward, 96, false, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{90, Pass::forward, 96, true, {.q = 128, .kv = 64, .warps = 4, .stages = 2}},
    TunedBlocks{90, Pass::forward, 128, false, {.q = 128, .kv = 64, .warps = 4, .stages = 1}},
    TunedBlocks{90, Pass::forward, 128, true, {.q = 128, .kv = 64, .warps = 4, .stages = 1}},
    TunedBlocks{90, Pass::forward, 192, false, {.q = 64, .kv = 64, .warps = 4, .stages = 1}},
    TunedBlocks{90, Pass::forward, 192, true, {.q = 64, .kv = 64, .warps = 4, .stages = 1}},
    TunedBlocks{90, Pass::forward, 256, false, {.q = 64, .kv = 64, .warps = 4, .stages = 1}},
    TunedBlocks{90, Pass::forward, 256, true, {.q = 64, .kv = 64, .warps = 4, .stages = 1}},
};

}  // namespace

std::span<const TunedBlocks> tuned_blocks() {
  return kTunedBlocks;
}

int compiled_head_dim(int64_t head_dim) {
  constexpr std::array kCompiled{32, 64, 96, 128, 192, 256};
  return *std::ranges::lower_bound(kCompiled, head_dim);
}

BlockSizes choose_blocks(const Problem& p, const DeviceInfo& device,
                         std::span<const BlockSizes> candidates) {
  const TunedBlocks* best = nullptr;
  for (const TunedBlocks& row : kTunedBlocks) {
    const bool fits = row.compute_capability <= device.compute_capability && row.pass == p.pass &&
                      row.head_dim == compiled_head_dim(p.head_dim) &&
                      row.causal == (p.mask != Mask::none) &&
                      std::ranges::find(candidates, row.blocks) != candidates.end();
    if (fits && (best == nullptr || row.compute_capability > best->compute_capability)) best = &row;
  }
  return best != nullptr ? best->blocks : candidates.front();
}

std::string describe(const BlockSizes& b) {
  return fmt::format("{}x{}, {} warps, {} stage{}", b.q, b.kv, b.warps, b.stages,
                     b.stages == 1 ? "" : "s");
}

}  // namespace flashbench::kernels::sm80
