#include "plan/length_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace flashbench {
namespace {

using testing::Each;
using testing::ElementsAre;

int64_t smallest(const std::vector<int64_t>& lengths) {
  return *std::min_element(lengths.begin(), lengths.end());
}
int64_t largest(const std::vector<int64_t>& lengths) {
  return *std::max_element(lengths.begin(), lengths.end());
}
double mean(const std::vector<int64_t>& lengths) {
  return static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) /
         static_cast<double>(lengths.size());
}

TEST(LengthPatterns, SomeAreSetToZero) {
  std::vector<int64_t> lengths(10000, 5), again = lengths, other = lengths;
  set_some_to_zero(lengths, 0.25, 3);
  set_some_to_zero(again, 0.25, 3);
  set_some_to_zero(other, 0.25, 4);
  EXPECT_NEAR(static_cast<double>(std::count(lengths.begin(), lengths.end(), 0)), 2500, 200);
  EXPECT_EQ(lengths, again);
  EXPECT_NE(lengths, other);
}

TEST(LengthPatterns, AreThoseOfFlashAttention) {
  EXPECT_THAT(lengths_by(LengthPattern::constant, 100, 3, 1), ElementsAre(100, 100, 100));
  EXPECT_THAT(lengths_by(LengthPattern::bimodal, 80, 4, 1), ElementsAre(80, 10, 80, 10));
  EXPECT_THAT(lengths_by(LengthPattern::skew, 100, 4, 1), ElementsAre(25, 50, 75, 100));

  const auto uniform = lengths_by(LengthPattern::uniform, 100, 2000, 1);
  EXPECT_EQ(smallest(uniform), 50);
  EXPECT_EQ(largest(uniform), 100);
  EXPECT_NEAR(mean(uniform), 75, 1.5);

  const auto wide = lengths_by(LengthPattern::wide, 100, 4000, 1);
  EXPECT_EQ(smallest(wide), 1);
  EXPECT_EQ(largest(wide), 100);
  EXPECT_NEAR(mean(wide), 50.5, 2);

  const auto tail = lengths_by(LengthPattern::longtail, 1600, 16, 1);
  EXPECT_EQ(std::count(tail.begin(), tail.end(), 1600), 2);
  for (const int64_t length : tail) {
    EXPECT_TRUE(length == 1600 || (length >= 100 && length <= 200)) << length;
  }
}

TEST(LengthPatterns, AreAtLeastOne) {
  for (const LengthPattern pattern : kLengthPatterns) {
    EXPECT_GE(smallest(lengths_by(pattern, 1, 40, 1)), 1) << name(pattern);
    EXPECT_GE(smallest(lengths_by(pattern, 7, 40, 1)), 1) << name(pattern);
  }
}

// Pinned: results are compared across machines and versions.
TEST(LengthPatterns, AreTheSameEverywhere) {
  EXPECT_THAT(lengths_by(LengthPattern::wide, 4096, 4, 7), ElementsAre(3654, 2303, 668, 3646));
  EXPECT_THAT(zipf_lengths(4096, 4, 7), ElementsAre(118, 1, 900, 3));
  EXPECT_THAT(lengths_by(kLengthQuantiles[0], 4, 7), ElementsAre(1397, 1537, 1418, 9));
}

TEST(LengthPatterns, FollowFromTheSeed) {
  EXPECT_EQ(lengths_by(LengthPattern::wide, 4096, 50, 7),
            lengths_by(LengthPattern::wide, 4096, 50, 7));
  EXPECT_NE(lengths_by(LengthPattern::wide, 4096, 50, 7),
            lengths_by(LengthPattern::wide, 4096, 50, 8));
}

TEST(LengthPatterns, ZipfIsInverseToTheLength) {
  const auto lengths = zipf_lengths(10000, 30000, 3);
  const auto share = [&](int64_t least, int64_t most) {
    return static_cast<double>(
               std::count_if(lengths.begin(), lengths.end(),
                             [&](int64_t length) { return length >= least && length <= most; })) /
           static_cast<double>(lengths.size());
  };
  constexpr double kHarmonic = 9.7876;  // sum of 1 / length up to 10000
  EXPECT_NEAR(share(1, 1), 1 / kHarmonic, 0.01);
  EXPECT_NEAR(share(2, 2), 0.5 / kHarmonic, 0.01);
  EXPECT_NEAR(share(1, 100), 5.1874 / kHarmonic, 0.01);
  EXPECT_THAT(zipf_lengths(1, 5, 3), Each(1));
}

TEST(LengthPatterns, QuantilesAreThoseOfTheTable) {
  for (const LengthQuantiles& quantiles : kLengthQuantiles) {
    auto lengths = lengths_by(quantiles, 20000, 5);
    std::sort(lengths.begin(), lengths.end());
    for (const auto& [per_mille, length] : quantiles.points) {
      const auto place = static_cast<size_t>(per_mille) * (lengths.size() - 1) / 1000;
      EXPECT_NEAR(static_cast<double>(lengths[place]), static_cast<double>(length),
                  0.05 * static_cast<double>(length) + 5)
          << quantiles.source << " " << per_mille;
    }
  }
}

// As the file of the table says.
TEST(LengthPatterns, QuantilesHaveTheirOwnMeans) {
  const std::array means{1209.0, 2329.0, 15449.0};
  for (size_t i = 0; i < means.size(); ++i) {
    EXPECT_NEAR(mean(lengths_by(kLengthQuantiles[i], 200000, 5)), means[i], 0.01 * means[i]);
  }
}

}  // namespace
}  // namespace flashbench
