#include "kernels/naive/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "inputs/random_value.h"
#include "tests/kernels/run_kernel.h"

namespace flashbench::kernels {
namespace {

constexpr double kRounding = 0x1p-24;  // relative, of fp32

float normal(int64_t index) {
  return random_value(Distribution::normal, 1, 0, static_cast<uint64_t>(index));
}

void expect_matches_fp64(const Problem& p) {
  const int64_t kv_len = p.kv_len;
  std::vector<float> scores(static_cast<size_t>(p.q_len * kv_len));
  std::vector<float> logsumexp(static_cast<size_t>(p.q_len), NAN);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = 4 * normal(static_cast<int64_t>(i));
  const std::vector<float> before = scores;
  naive_softmax(p, 0, p.q_len, scores.data(), logsumexp.data());
  for (int64_t row = 0; row < p.q_len; ++row) {
    const RowRange visible = p.visible_keys(row);
    double sum = 0, maximum = -std::numeric_limits<double>::infinity();
    for (int64_t key = visible.first; key < visible.end; ++key) {
      const double score = before[static_cast<size_t>(row * kv_len + key)];
      sum += std::exp2(score);
      maximum = std::max(maximum, score);
    }
    for (int64_t key = 0; key < kv_len; ++key) {
      const auto i = static_cast<size_t>(row * kv_len + key);
      if (!visible.contains(key)) {
        ASSERT_EQ(scores[i], 0) << row << " " << key;
        continue;
      }
      const double expected = std::exp2(before[i]) / sum;
      // The distance to the maximum is rounded, relatively to itself, and then an exponent.
      const double roundings = 12 + (maximum - before[i]);
      ASSERT_NEAR(scores[i], expected, roundings * kRounding * expected) << row << " " << key;
    }
    const float l = logsumexp[static_cast<size_t>(row)];
    if (visible.empty()) {
      ASSERT_EQ(l, -std::numeric_limits<float>::infinity());
    } else {
      ASSERT_NEAR(l, std::log(sum), 2e-6);
    }
  }
}

// Lengths around whole vectors of every target; with the mask, every number of visible keys, and
// with a window each of them from every key on.
TEST(NaiveSoftmax, MatchesFp64) {
  for_every_target([&](const std::string& target) {
    for (const Mask mask : kMasks) {
      for (const int64_t kv_len : {1, 3, 16, 17, 31, 40}) {
        for (const std::optional<int64_t> left : {std::optional<int64_t>(), {0}, {7}, {20}}) {
          SCOPED_TRACE(target + " " + std::string(name(mask)) + " " + std::to_string(kv_len) +
                       " left " + std::to_string(left.value_or(-1)));
          Problem p;
          p.mask = mask;
          p.q_len = 45;
          p.kv_len = kv_len;
          p.window_left = left;
          if (left) p.window_right = 3;
          expect_matches_fp64(p);
        }
      }
    }
  });
}

TEST(NaiveSoftmax, StartsAtTheFirstQueryAsked) {
  Problem p;
  p.mask = Mask::causal_top_left;
  p.q_len = p.kv_len = 20;
  std::vector<float> scores(20, 0.0f), logsumexp(1);
  naive_softmax(p, 3, 1, scores.data(), logsumexp.data());
  for (size_t key = 0; key < 20; ++key) EXPECT_EQ(scores[key], key < 4 ? 0.25f : 0.0f);
}

TEST(NaiveSoftmax, GradientMatchesItsFormula) {
  for_every_target([&](const std::string& target) {
    Problem p;
    p.q_len = 9;
    p.kv_len = 37;
    p.mask = Mask::causal_top_left;  // queries 5, 6 and 7 see 6, 7 and 8 keys
    std::vector<float> probabilities(111), dp(111), delta{0.5f, -1, 2};
    for (size_t i = 0; i < 111; ++i) {
      probabilities[i] = std::abs(normal(static_cast<int64_t>(i)));
      dp[i] = normal(static_cast<int64_t>(1000 + i));
    }
    const std::vector<float> before = dp;
    naive_softmax_gradient(p, 5, 3, probabilities.data(), dp.data(), delta.data());
    for (size_t i = 0; i < 111; ++i) {
      const bool visible = i % 37 < 6 + i / 37;
      ASSERT_FLOAT_EQ(dp[i], visible ? probabilities[i] * (before[i] - delta[i / 37]) : 0)
          << target << " " << i;
    }
  });
}

TEST(NaiveSoftmax, GradientKeepsToTheWindow) {
  for_every_target([&](const std::string& target) {
    Problem p;
    p.q_len = p.kv_len = 37;
    p.window_left = 17;
    p.window_right = 4;
    std::vector<float> probabilities(37 * 37, 2), dp(37 * 37, 5), delta(37, 1);
    naive_softmax_gradient(p, 0, 37, probabilities.data(), dp.data(), delta.data());
    for (int64_t row = 0; row < 37; ++row) {
      for (int64_t key = 0; key < 37; ++key) {
        ASSERT_EQ(dp[static_cast<size_t>(row * 37 + key)],
                  key >= row - 17 && key <= row + 4 ? 8 : 0)
            << target << " " << row << " " << key;
      }
    }
  });
}

}  // namespace
}  // namespace flashbench::kernels
