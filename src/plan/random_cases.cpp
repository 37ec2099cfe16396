#include "plan/random_cases.h"

#include <algorithm>
#include <array>

namespace flashbench {

namespace {

// Mostly short, at times one or around a tile's edge.
int64_t length(Draw& draw, int64_t longest) {
  if (draw.chance(8)) return 1;
  if (draw.chance(4)) {
    return std::min(longest, 64 * draw.integer(1, longest / 64) + draw.integer(-1, 1));
  }
  return draw.integer(1, draw.chance(4) ? longest : longest / 4);
}

// Those that kernels are compiled for, and others, which they pad.
int64_t head_dim(Draw& draw) {
  if (draw.chance(4)) return draw.one_of(std::array{64, 128, 256});
  return kHeadDimStep * draw.integer(1, draw.chance(4) ? kMaxHeadDim / kHeadDimStep : 16);
}

}  // namespace

Case random_case(uint64_t seed, int64_t longest) {
  Draw draw(seed);
  Case item;
  Problem& p = item.problem;
  p.pass = draw.one_of(kPasses);
  p.dtype = draw.one_of(kDtypes);
  p.mask = draw.one_of(kMasks);
  p.layout = draw.one_of(kLayouts);
  p.batch = draw.integer(1, 2);
  p.kv_heads = draw.integer(1, 2);
  p.q_heads = p.kv_heads * draw.one_of(std::array{1, 2, 3, 8});
  p.q_len = length(draw, longest);
  p.kv_len = length(draw, longest);
  p.head_dim = head_dim(draw);
  if (draw.chance(3)) p.scale = static_cast<double>(draw.integer(-400, 400)) / 100;
  item.inputs.distribution =
      draw.one_of(std::array{Distribution::normal, Distribution::uniform, Distribution::outliers});
  item.inputs.seed = seed;
  if (draw.chance(4))
    item.placement = draw.one_of(std::array{Placement::strided, Placement::offset});
  return item;
}

}  // namespace flashbench
