#include "case/distance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/half.h"

namespace flashbench {

namespace {

constexpr int64_t kChunk = int64_t{1} << 16;  // elements per work item

struct Tally {
  double max = 0, sum = 0;
  int64_t count = 0;
};

double value_at(const ConstTensorView& t, int64_t index) {
  const auto value = static_cast<double>(load_element(t.data, t.dtype, index));
  return t.descales.data == nullptr ? value : value * static_cast<double>(*t.descales.data);
}

Tally tally(const ConstTensorView& a, const ConstTensorView& b, int64_t first, int64_t end) {
  Tally result;
  for (int64_t i = first; i < end; ++i) {
    const double gap = std::abs(value_at(a, i) - value_at(b, i));
    if (!std::isfinite(gap)) continue;
    result.max = std::max(result.max, gap);
    result.sum += gap;
    ++result.count;
  }
  return result;
}

void add(Tally& total, const Tally& part) {
  total.max = std::max(total.max, part.max);
  total.sum += part.sum;
  total.count += part.count;
}

}  // namespace

Distance distance(const Problem& p, HostOutputs& a, HostOutputs& b, ThreadPool& pool) {
  Tally total;
  const auto compare = [&](const ConstTensorView& left, const ConstTensorView& right) {
    const int64_t chunks = (left.elements() + kChunk - 1) / kChunk;
    std::vector<Tally> parts(static_cast<size_t>(chunks));
    pool.parallel_for(chunks, [&](int64_t chunk, int) {
      parts[static_cast<size_t>(chunk)] =
          tally(left, right, chunk * kChunk, std::min(left.elements(), (chunk + 1) * kChunk));
    });
    for (const Tally& part : parts) add(total, part);
  };
  const Outputs left = a.view(), right = b.view();
  if (p.pass == Pass::forward) {
    compare(left.o, right.o);
  } else {
    compare(left.dq, right.dq);
    compare(left.dk, right.dk);
    compare(left.dv, right.dv);
  }
  return {total.max, total.count == 0 ? 0 : total.sum / static_cast<double>(total.count)};
}

}  // namespace flashbench
