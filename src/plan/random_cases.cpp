#include "plan/random_cases.h"

#include "plan/axis.h"

namespace flashbench {

Case random_case(uint64_t seed, int64_t longest) {
  Draw draw(seed);
  Case item;
  for (const Axis& axis : axes()) {
    if (axis.draw) axis.draw(item, draw, longest);
  }
  item.inputs.seed = seed;
  return item;
}

}  // namespace flashbench
