#include "providers/split/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flashbench {

namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

}  // namespace

void merge_rows(const PartialRow& sum, const PartialRow& part, int64_t columns) {
  const float first = *sum.logsumexp, second = *part.logsumexp;
  if (second == kNone) {
    if (first == kNone) std::fill_n(sum.o, columns, 0.0f);
    return;
  }
  if (first == kNone) {
    std::copy_n(part.o, columns, sum.o);
    *sum.logsumexp = second;
    return;
  }
  const float highest = std::max(first, second);
  const float w1 = std::exp(first - highest), w2 = std::exp(second - highest);
  for (int64_t i = 0; i < columns; ++i) sum.o[i] = (w1 * sum.o[i] + w2 * part.o[i]) / (w1 + w2);
  *sum.logsumexp = highest + std::log(w1 + w2);
}

}  // namespace flashbench
