// Hypothesis tests, compared with tables and with counts of every arrangement.
#include "compare/hypothesis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace flashbench {
namespace {

// Pairs with the second group's sample above; ties count half.
double pairs_above(const std::vector<double>& low, const std::vector<double>& high) {
  double u = 0;
  for (double x : low) {
    for (double y : high) u += y > x ? 1 : y == x ? 0.5 : 0;
  }
  return u;
}

// The share of all choices of the second group that have at least as many pairs above.
double by_counting(const std::vector<double>& low, const std::vector<double>& high) {
  std::vector<double> all = low;
  all.insert(all.end(), high.begin(), high.end());
  std::vector<bool> is_high(all.size());
  std::fill(is_high.end() - static_cast<std::ptrdiff_t>(high.size()), is_high.end(), true);
  const double found = pairs_above(low, high);
  int as_many = 0, ways = 0;
  do {
    std::vector<double> a, b;
    for (size_t i = 0; i < all.size(); ++i) (is_high[i] ? b : a).push_back(all[i]);
    as_many += pairs_above(a, b) >= found;
    ++ways;
  } while (std::next_permutation(is_high.begin(), is_high.end()));
  return static_cast<double>(as_many) / ways;
}

std::vector<double> random_samples(std::mt19937& random, int count, double shift) {
  std::vector<double> samples;
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int i = 0; i < count; ++i) samples.push_back(uniform(random) + shift);
  return samples;
}

TEST(MannWhitney, SmallGroupsAreExact) {
  std::mt19937 random(1);
  for (int n = 1; n <= 6; ++n) {
    for (int m = 1; m <= 6; ++m) {
      for (double shift : {-0.4, 0.0, 0.4}) {
        const auto low = random_samples(random, n, 0), high = random_samples(random, m, shift);
        EXPECT_NEAR(mann_whitney(low, high), by_counting(low, high), 1e-12) << n << " and " << m;
      }
    }
  }
}

TEST(MannWhitney, SeparateGroupsHaveTheSmallestProbability) {
  // 1 of (16 choose 8) arrangements.
  EXPECT_NEAR(mann_whitney(std::vector{1., 2., 3., 4., 5., 6., 7., 8.},
                           std::vector{11., 12., 13., 14., 15., 16., 17., 18.}),
              1.0 / 12870, 1e-15);
  EXPECT_DOUBLE_EQ(mann_whitney(std::vector{2.}, std::vector{1.}), 1);
}

TEST(MannWhitney, LargeGroupsAreNearTheExactValue) {
  // From 21 samples on the approximation is used; the exact values of both sides bound it.
  std::mt19937 random(2);
  std::vector<double> low = random_samples(random, 20, 0), high = random_samples(random, 20, 0.15);
  const double exact = mann_whitney(low, high);
  low.push_back(0.55);
  EXPECT_NEAR(mann_whitney(low, high), exact, 0.1 * exact + 0.01);
}

TEST(MannWhitney, TiesSayNothingAndAreNoEvidence) {
  EXPECT_DOUBLE_EQ(mann_whitney(std::vector{3., 3., 3.}, std::vector{3., 3., 3., 3.}), 1);
  // n = m = 4, half of all tied: U = 12, the variance 16/12 * (9 - 60/56), 0.5 for continuity.
  const double variance = 16.0 / 12 * (9 - (4 * 4 * 4 - 4) / 56.0);
  EXPECT_NEAR(mann_whitney(std::vector{1., 2., 3., 3.}, std::vector{3., 3., 4., 5.}),
              std::erfc((14 - 8 - 0.5) / std::sqrt(variance) / std::numbers::sqrt2) / 2, 1e-12);
}

TEST(StudentT, MatchesClosedForms) {
  for (double t : {-3.0, -0.5, 0.0, 0.1, 1.0, 2.5, 40.0}) {
    EXPECT_NEAR(student_t_upper(t, 1), 0.5 - std::atan(t) / std::numbers::pi, 1e-12) << t;
    EXPECT_NEAR(student_t_upper(t, 2), 0.5 - t / (2 * std::sqrt(2 + t * t)), 1e-12) << t;
    EXPECT_NEAR(student_t_upper(t, 1e6), std::erfc(t / std::numbers::sqrt2) / 2, 1e-6) << t;
  }
}

TEST(StudentT, QuantilesMatchTheTables) {
  EXPECT_NEAR(student_t_quantile(0.025, 6), 2.447, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.005, 10), 3.169, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.05, 4), 2.132, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.0005, 30), 3.646, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.5, 3), 0, 1e-12);
}

TEST(Holm, StepsDown) {
  EXPECT_THAT(holm(std::vector{0.01, 0.04, 0.03, 0.005}),
              testing::Pointwise(testing::DoubleNear(1e-15), {0.03, 0.06, 0.06, 0.02}));
  EXPECT_THAT(holm(std::vector{0.6, 0.7}), testing::ElementsAre(1.0, 1.0));
  EXPECT_THAT(holm(std::vector{0.02}), testing::ElementsAre(0.02));
  EXPECT_TRUE(holm({}).empty());
}

}  // namespace
}  // namespace flashbench
