#include "inputs/page_order.h"

#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "inputs/split_mix.h"

namespace flashbench {

namespace {

constexpr uint64_t kStream = 17;  // apart from those of the tensors

std::vector<int32_t> in_order(int64_t pages) {
  std::vector<int32_t> permutation(static_cast<size_t>(pages));
  std::iota(permutation.begin(), permutation.end(), 0);
  return permutation;
}

std::vector<int32_t> shuffled(int64_t pages, uint64_t seed) {
  std::vector<int32_t> permutation = in_order(pages);
  for (size_t left = permutation.size(); left > 1; --left) {
    const uint64_t bits = random_bits(seed, kStream, left) >> 32;  // below 2^32, as `left` is
    std::swap(permutation[left - 1], permutation[bits * left >> 32]);
  }
  return permutation;
}

std::vector<int32_t> permutation_of(PageOrder order, int64_t pages, uint64_t seed) {
  switch (order) {
    case PageOrder::shuffled:
      return shuffled(pages, seed);
    case PageOrder::linear:
      return in_order(pages);
    case PageOrder::reversed: {
      const std::vector<int32_t> forward = in_order(pages);
      return {forward.rbegin(), forward.rend()};
    }
  }
  throw std::logic_error("no such page order");
}

}  // namespace

BlockTable make_block_table(const Problem& p, uint64_t seed) {
  BlockTable table = p.linear_table();
  if (p.block_table) return table;
  const std::vector<int32_t> permutation = permutation_of(p.page_order, table.pages(), seed);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t i = 0; i < p.pages_of(b); ++i) {
      table.at(b, i) = permutation[static_cast<size_t>(table.at(b, i))];
    }
  }
  return table;
}

}  // namespace flashbench
