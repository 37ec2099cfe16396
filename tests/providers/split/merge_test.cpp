#include "providers/split/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace flashbench {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

struct Row {
  std::vector<float> o;
  float logsumexp;

  PartialRow partial() { return {o.data(), &logsumexp}; }
};

Row merged(Row sum, Row part) {
  merge_rows(sum.partial(), part.partial(), static_cast<int64_t>(sum.o.size()));
  return sum;
}

TEST(Merge, IsTheSoftmaxOverBothSetsOfKeys) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> value(-3, 3);
  for (int i = 0; i < 100; ++i) {
    const double l1 = 5 * value(random), l2 = 5 * value(random), o1 = value(random),
                 o2 = value(random);
    const Row found = merged({{static_cast<float>(o1)}, static_cast<float>(l1)},
                             {{static_cast<float>(o2)}, static_cast<float>(l2)});
    const double sum = std::exp(l1) + std::exp(l2);
    EXPECT_NEAR(found.o[0], (std::exp(l1) * o1 + std::exp(l2) * o2) / sum, 3e-6);
    EXPECT_NEAR(found.logsumexp, std::log(sum), 3e-6);
  }
}

TEST(Merge, APartThatSawNoKeyCountsForNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Row found = merged({{1, 2}, 0.5f}, {{nan, nan}, kNone});
  EXPECT_EQ(found.o, (std::vector<float>{1, 2}));
  EXPECT_EQ(found.logsumexp, 0.5f);
  found = merged({{nan, nan}, kNone}, {{1, 2}, 0.5f});
  EXPECT_EQ(found.o, (std::vector<float>{1, 2}));
  EXPECT_EQ(found.logsumexp, 0.5f);
  found = merged({{nan, nan}, kNone}, {{nan, nan}, kNone});
  EXPECT_EQ(found.o, (std::vector<float>{0, 0}));
  EXPECT_EQ(found.logsumexp, kNone);
}

// L1 + log(1 + exp(L2 - L1)) overflows from a difference of 89 on.
TEST(Merge, NoDifferenceOverflows) {
  for (const float difference : {50.0f, 100.0f, 1000.0f, 1e6f, 1e30f}) {
    for (const bool exchanged : {false, true}) {
      Row low{{3}, -difference / 2}, high{{5}, difference / 2};
      const Row found = exchanged ? merged(low, high) : merged(high, low);
      EXPECT_EQ(found.o[0], 5);
      EXPECT_EQ(found.logsumexp, difference / 2);
    }
  }
}

TEST(Merge, NaNStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(merged({{1}, 1}, {{nan}, nan}).o[0]));
  EXPECT_TRUE(std::isnan(merged({{1}, 1}, {{nan}, nan}).logsumexp));
  EXPECT_TRUE(std::isnan(merged({{nan}, nan}, {{1}, 1}).logsumexp));
}

}  // namespace
}  // namespace flashbench
