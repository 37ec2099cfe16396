#include "inputs/random_value.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace flashbench {
namespace {

// First values of the generator, computed by an independent program from the formula in
// docs/problems.md.
TEST(RandomValue, FollowsTheDocumentedFormula) {
  EXPECT_NEAR(random_value(Distribution::uniform, 1, 0, 0), 0.387024278, 1e-6);
  EXPECT_NEAR(random_value(Distribution::normal, 1, 0, 0), -0.769350757, 1e-6);
  EXPECT_NEAR(random_value(Distribution::normal, 7, 3, 1000000), -0.759351194, 1e-6);
}

struct Moments {
  double mean, variance, largest;
};

Moments moments(Distribution distribution, int64_t count) {
  double sum = 0, squares = 0, largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = random_value(distribution, 3, 1, static_cast<uint64_t>(i));
    sum += value;
    squares += value * value;
    largest = std::max(largest, std::abs(value));
  }
  const double n = static_cast<double>(count), mean = sum / n;
  return {mean, squares / n - mean * mean, largest};
}

TEST(RandomValue, MomentsOfEachDistribution) {
  constexpr int64_t kCount = 400000;  // standard errors: mean 0.0016, variance 0.0022
  const Moments normal = moments(Distribution::normal, kCount);
  EXPECT_NEAR(normal.mean, 0, 0.008);
  EXPECT_NEAR(normal.variance, 1, 0.012);
  EXPECT_LT(normal.largest, 7);
  const Moments uniform = moments(Distribution::uniform, kCount);
  EXPECT_NEAR(uniform.mean, 0, 0.005);
  EXPECT_NEAR(uniform.variance, 1.0 / 3, 0.003);
  EXPECT_LE(uniform.largest, 1);
  const Moments outliers = moments(Distribution::outliers, kCount);
  EXPECT_NEAR(outliers.variance, 1 + 0.001 * 100, 0.05);
  EXPECT_GT(outliers.largest, 12);
}

}  // namespace
}  // namespace flashbench
