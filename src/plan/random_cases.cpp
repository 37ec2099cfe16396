#include "plan/random_cases.h"

#include <array>

#include "plan/axis.h"

namespace flashbench {

namespace {

constexpr uint64_t kDrawsOfBytes = 0xb17e5;  // apart from the draws of the other case

Case drawn_case(Draw& draw, int64_t longest) {
  Case item;
  for (const Axis& axis : axes()) {
    if (axis.draw) axis.draw(item, draw, longest);
  }
  return item;
}

}  // namespace

Case random_case(uint64_t seed, int64_t longest) {
  Draw draw(seed);
  Case item = drawn_case(draw, longest);
  item.inputs.seed = seed;
  return item;
}

Case random_case_of_bytes(uint64_t seed, int64_t longest) {
  constexpr std::array kWithAMean{Distribution::mean_v, Distribution::channel_offsets};
  Draw draw(seed ^ kDrawsOfBytes);
  Case item;
  do {  // until neither lengths nor pages are drawn
    item = drawn_case(draw, longest);
    item.problem.pass = Pass::forward;
    item.problem.dtype = Dtype::e4m3;
    item.problem.descale = draw.one_of(kDescales);
    if (draw.chance(4)) item.inputs.distribution = draw.one_of(kWithAMean);
  } while (item.invalid());
  item.inputs.seed = seed;
  return item;
}

}  // namespace flashbench
