// Transposed accumulators of dQ: each tile of 64 rows has a place, and a consumer's 64 columns,
// which go to memory in one piece, lie together.
#include "kernels/backward/accumulator.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace flashbench::kernels::backward {
namespace {

constexpr int kRows = 64 / 8, kColumns = 64 / 16;  // in tiles

// The places of all tiles of the columns that begin with this one.
std::vector<int> places(int first_column) {
  std::vector<int> found;
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      found.push_back(transposed_tile(row, first_column + column));
    }
  }
  return found;
}

TEST(TransposedAccumulators, KeepTheColumnsOfAConsumerTogether) {
  std::vector<int> expected(kRows * kColumns);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_THAT(places(0), testing::UnorderedElementsAreArray(expected));
  std::iota(expected.begin(), expected.end(), kRows * kColumns);
  EXPECT_THAT(places(kColumns), testing::UnorderedElementsAreArray(expected));
}

}  // namespace
}  // namespace flashbench::kernels::backward
