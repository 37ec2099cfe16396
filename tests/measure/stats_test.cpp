#include "measure/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace flashbench {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Stats, Median) {
  EXPECT_EQ(median(std::vector{3.0}), 3);
  EXPECT_EQ(median(std::vector{4.0, 1.0, 3.0}), 3);
  EXPECT_EQ(median(std::vector{4.0, 1.0, 3.0, 2.0}), 2.5);
}

// Ranks from tables of the sign test.
TEST(Stats, IntervalRanks) {
  const auto ranks = [](int n) {
    const auto interval = median_interval(one_to(n));
    return interval ? std::pair(interval->low, interval->high) : std::pair(0.0, 0.0);
  };
  EXPECT_EQ(ranks(5), std::pair(0.0, 0.0));
  EXPECT_EQ(ranks(6), std::pair(1.0, 6.0));
  EXPECT_EQ(ranks(10), std::pair(2.0, 9.0));
  EXPECT_EQ(ranks(20), std::pair(6.0, 15.0));
  EXPECT_EQ(ranks(30), std::pair(10.0, 21.0));
  EXPECT_EQ(ranks(100), std::pair(40.0, 61.0));
  EXPECT_EQ(ranks(2000).first, 956);
}

TEST(Stats, IntervalCoversTheTrueMedianAtLeastAsOftenAsItSays) {
  std::mt19937_64 bits(1);
  std::exponential_distribution<double> skewed(1.0);
  int covered = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> samples(25);
    for (double& sample : samples) sample = skewed(bits);
    const auto interval = median_interval(samples);
    covered += interval->low <= std::log(2.0) && std::log(2.0) <= interval->high ? 1 : 0;
  }
  EXPECT_GE(covered, static_cast<int>(0.94 * kTrials));
  EXPECT_LT(covered, kTrials);
}

TEST(Stats, RelativeWidth) {
  EXPECT_FALSE(relative_interval_width(one_to(5)));
  EXPECT_DOUBLE_EQ(*relative_interval_width(one_to(6)), 5 / 3.5);
}

TEST(Stats, OutliersAreNamed) {
  std::vector<double> samples{10, 10.1, 9.9, 10.2, 9.8, 10.05, 50};
  EXPECT_EQ(outliers(samples), std::vector{6});
  samples.pop_back();
  EXPECT_TRUE(outliers(samples).empty());
  EXPECT_TRUE(outliers({}).empty());
  EXPECT_TRUE(outliers(std::vector{1.0, 1.0, 1.0}).empty());
}

}  // namespace
}  // namespace flashbench
