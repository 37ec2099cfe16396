// The documented properties of the adversarial inputs.
#include "inputs/patterns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/half.h"
#include "inputs/inputs.h"

namespace flashbench {
namespace {

Problem problem_of(Dtype dtype, Mask mask = Mask::causal_bottom_right) {
  return {.dtype = dtype,
          .mask = mask,
          .batch = 2,
          .q_heads = 4,
          .kv_heads = 2,
          .q_len = 70,
          .kv_len = 192};
}

// The scaled scores of one query row with all keys, from the inputs as rounded to the dtype.
std::vector<double> scores_of(const Problem& p, const Inputs& in, int64_t b, int64_t h,
                              int64_t row) {
  std::vector<double> scores;
  const auto element = [](const ConstTensorView& t, int64_t at) {
    return static_cast<double>(load_element(t.data, t.dtype, at));
  };
  for (int64_t key = 0; key < p.kv_len; ++key) {
    double sum = 0;
    for (int64_t c = 0; c < p.head_dim; ++c) {
      sum += element(in.q, in.q.offset(b, h, row) + c) *
             element(in.k, in.k.offset(b, h / p.heads_per_kv_head(), key) + c);
    }
    scores.push_back(p.softmax_scale() * sum);
  }
  return scores;
}

// Calls check(problem, batch, head, row, scores of the row) for rows of every head and dtype.
template <typename Check>
void for_scores(Distribution distribution, const Check& check) {
  ThreadPool pool(2);
  for (const Dtype dtype : kUnscaledDtypes) {
    const Problem p = problem_of(dtype);
    const HostTensors host(p, {.distribution = distribution}, pool);
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t h = 0; h < p.q_heads; ++h) {
        for (int64_t row = 0; row < p.q_len; row += 23) {
          check(p, b, h, row, scores_of(p, host.inputs(), b, h, row));
        }
      }
    }
  }
}

// ---- of dtype e4m3

// The values that the bytes of a tensor mean, by head: [batch * heads][length * head_dim].
std::vector<std::vector<float>> values_of(const ConstTensorView& t) {
  std::vector<std::vector<float>> heads;
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      heads.emplace_back();
      for (int64_t row = 0; row < t.length; ++row) {
        for (int64_t c = 0; c < t.head_dim; ++c) {
          heads.back().push_back(t.descales.at(b, h, row) *
                                 load_element(t.data, t.dtype, t.offset(b, h, row) + c));
        }
      }
    }
  }
  return heads;
}

// What is said to be exact means the same as in bf16, whatever has a factor.
TEST(PatternsOfBytes, MeanTheSameWhereTheyAreExact) {
  ThreadPool pool(2);
  for (const Descale descale : kDescales) {
    Problem p = problem_of(Dtype::e4m3);
    p.descale = descale;
    const Problem wide = problem_of(Dtype::bf16);
    const InputSpec equal{.distribution = Distribution::equal_scores};
    const HostTensors bytes(p, equal, pool), values(wide, equal, pool);
    const auto same = [](const ConstTensorView& a, const ConstTensorView& b) {
      ConstTensorView without_factors = b;
      const float one = 1;
      without_factors.descales = {&one, 0, 0, 0};
      return values_of(a) == values_of(without_factors);
    };
    EXPECT_TRUE(same(bytes.inputs().q, values.inputs().q)) << name(descale);
    EXPECT_TRUE(same(bytes.inputs().k, values.inputs().k));
    EXPECT_TRUE(same(bytes.inputs().v, values.inputs().v));

    const InputSpec one_hot{.distribution = Distribution::one_hot};
    const HostTensors hot_bytes(p, one_hot, pool), hot_values(wide, one_hot, pool);
    EXPECT_TRUE(same(hot_bytes.inputs().q, hot_values.inputs().q));
    EXPECT_TRUE(same(hot_bytes.inputs().k, hot_values.inputs().k));
  }
}

TEST(PatternsOfBytes, OneHotHasEveryFiniteNumberInV) {
  ThreadPool pool(2);
  Problem p = problem_of(Dtype::e4m3);
  p.kv_len = 253;
  const HostTensors host(p, {.distribution = Distribution::one_hot}, pool);
  const ConstTensorView v = host.inputs().v;
  std::vector<bool> seen(256, false);
  for (int64_t row = 0; row < p.kv_len; ++row) {
    const int64_t at = v.offset(1, 1, row);
    ASSERT_EQ(v.descales.at(1, 1, row), 1);
    seen[static_cast<const uint8_t*>(v.data)[at + 4]] = true;  // the row's first digit
    const auto source = one_hot_source(Dtype::e4m3, v, 1, 1, row);
    ASSERT_TRUE(source);
    EXPECT_EQ(source->batch, 1);
    EXPECT_EQ(source->head, 1);
    EXPECT_EQ(source->row, row);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const bool finite = byte != 0x7f && byte != 0xff && byte != 0x80;  // and not -0
    EXPECT_EQ(seen[static_cast<size_t>(byte)], finite) << byte;
  }
}

TEST(PatternsOfBytes, HugeScoresAre4096Apart) {
  ThreadPool pool(2);
  const Problem p = problem_of(Dtype::e4m3);
  const HostTensors host(p, {.distribution = Distribution::huge_scores}, pool);
  const auto q = values_of(host.inputs().q), k = values_of(host.inputs().k);
  for (int64_t key = 0; key < p.kv_len; ++key) {
    float score = 0;
    for (int64_t c = 0; c < p.head_dim; ++c) {
      score += q[1][static_cast<size_t>(c)] * k[0][static_cast<size_t>(key * p.head_dim + c)];
    }
    ASSERT_EQ(score, 524288 - 4096 * static_cast<float>(key % 5));
  }
}

TEST(PatternsOfBytes, SubnormalsHaveNoNormalByte) {
  ThreadPool pool(2);
  const Problem p = problem_of(Dtype::e4m3);
  const HostTensors host(p, {.distribution = Distribution::subnormals}, pool);
  const Inputs in = host.inputs();
  for (const auto& [t, most] : {std::pair{in.q, 3}, {in.k, 3}, {in.v, 7}}) {
    const auto* bytes = static_cast<const uint8_t*>(t.data);
    int largest = 0;
    for (int64_t i = 0; i < t.elements(); ++i) {
      largest = std::max(largest, bytes[i] & 0x7f);
    }
    EXPECT_EQ(largest, most);
    EXPECT_EQ(t.descales.at(1, 1, 0), 512);
  }
}

double logsumexp(const std::vector<double>& scores) {
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - max);
  return max + std::log(sum);
}

TEST(Patterns, EqualScoresAreEqualAndNotAllZero) {
  double largest = 0;
  for_scores(Distribution::equal_scores,
             [&](const Problem&, auto, auto, auto, const std::vector<double>& scores) {
               for (const double score : scores) ASSERT_EQ(score, scores[0]);
               largest = std::max(largest, std::abs(scores[0]));
             });
  EXPECT_GT(largest, 0);
}

TEST(Patterns, OneHotPicksAVisibleKeyWithAMargin) {
  std::vector<int64_t> picked;
  for_scores(Distribution::one_hot, [&](const Problem& p, int64_t b, int64_t h, int64_t row,
                                        const std::vector<double>& scores) {
    const int64_t key = one_hot_key(p, 1, b, h, row).value();
    ASSERT_TRUE(p.visible_keys(row).contains(key));
    for (int64_t other = 0; other < p.kv_len; ++other) {
      if (other == key) continue;
      ASSERT_GE(scores[static_cast<size_t>(key)] - scores[static_cast<size_t>(other)], 128);
    }
    picked.push_back(key);
  });
  std::sort(picked.begin(), picked.end());
  EXPECT_GT(std::unique(picked.begin(), picked.end()) - picked.begin(), 10);
}

TEST(Patterns, OneHotSaysWhereItHasNoMargin) {
  Problem p = problem_of(Dtype::fp16);
  EXPECT_TRUE(one_hot_is_exact(p));
  p.scale = -2.0;
  EXPECT_TRUE(one_hot_is_exact(p));
  p.scale = 0.0;
  EXPECT_FALSE(one_hot_is_exact(p));
  p.scale.reset();
  p.head_dim = 8;
  p.kv_len = 256;
  EXPECT_TRUE(one_hot_is_exact(p));
  p.kv_len = 257;  // nine bits in eight columns
  EXPECT_FALSE(one_hot_is_exact(p));
}

TEST(Patterns, OneHotHasNoKeyForARowThatSeesNone) {
  Problem p = problem_of(Dtype::fp32);
  p.q_len = 300;
  EXPECT_FALSE(one_hot_key(p, 1, 0, 0, 107));
  EXPECT_EQ(one_hot_key(p, 1, 0, 0, 108), 0);
}

TEST(Patterns, ValuesOfOneHotSpellWhereTheyAreFrom) {
  for (const Dtype dtype : kUnscaledDtypes) {
    for (const int64_t number : {0, 1, 255, 256, 511, 512, 65535, 65536, 131071}) {
      std::vector<float> memory(8);
      const auto t = dense_view<void>(memory.data(), dtype, Layout::bhsd, 1, 1, 1, 8);
      for (int64_t c = 0; c < 8; ++c) {
        store_element(t.data, dtype, c,
                      one_hot_value(dtype, number, 131071 - number, 7 * number, c));
      }
      const auto source = one_hot_source(dtype, t, 0, 0, 0);
      ASSERT_TRUE(source);
      EXPECT_EQ(source->batch, number);
      EXPECT_EQ(source->head, 131071 - number);
      EXPECT_EQ(source->row, 7 * number);
      store_element(t.data, dtype, 2, 0.5f);
      EXPECT_FALSE(one_hot_source(dtype, t, 0, 0, 0));
    }
  }
  EXPECT_NE(one_hot_value(Dtype::fp32, 0, 0, 0, 7), one_hot_value(Dtype::fp32, 0, 0, 0, 15));
}

TEST(Patterns, LateMaximumRisesFromTileToTile) {
  for_scores(Distribution::late_maximum,
             [](const Problem&, auto, auto, auto, const std::vector<double>& scores) {
               const auto tile = [&](int64_t i) {
                 return *std::max_element(scores.begin() + 64 * i, scores.begin() + 64 * (i + 1));
               };
               ASSERT_LT(tile(0), tile(1));
               ASSERT_LT(tile(1), tile(2));
             });
}

TEST(Patterns, LowLogsumexpIsBelowWhatExpOfFp32CanTake) {
  for_scores(Distribution::low_logsumexp,
             [](const Problem&, auto, auto, auto, const std::vector<double>& scores) {
               ASSERT_LT(logsumexp(scores), -88.8);
               ASSERT_GT(logsumexp(scores), -130);
             });
}

TEST(Patterns, HugeScoresAreTwoToTheNineteenthBeforeTheScale) {
  for_scores(Distribution::huge_scores,
             [](const Problem& p, auto, int64_t h, auto, const std::vector<double>& scores) {
               const double sign = h % 2 == 0 ? -1 : 1;
               for (size_t key = 0; key < scores.size(); ++key) {
                 const double raw = sign * (524288 - 256.0 * static_cast<double>(key % 5));
                 ASSERT_EQ(scores[key], p.softmax_scale() * raw);
               }
             });
}

TEST(Patterns, SpoilOneRowOfKOrTheUnseenOnes) {
  ThreadPool pool(2);
  Problem p = problem_of(Dtype::bf16, Mask::causal_top_left);
  EXPECT_EQ(spoilt_key(p), 35);
  for (const Distribution distribution :
       {Distribution::nan_key, Distribution::inf_key, Distribution::nan_unseen}) {
    const HostTensors host(p, {.distribution = distribution}, pool);
    const ConstTensorView k = host.inputs().k;
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t h = 0; h < p.kv_heads; ++h) {
        for (int64_t row = 0; row < p.kv_len; ++row) {
          const auto at = [&](int64_t c) {
            return load_element(k.data, k.dtype, k.offset(b, h, row) + c);
          };
          const bool last = b == 1 && h == 1 && row == 35;
          const bool nan = distribution == Distribution::nan_key      ? last
                           : distribution == Distribution::nan_unseen ? row >= 70
                                                                      : false;
          ASSERT_EQ(std::isnan(at(0)), nan) << name(distribution) << " " << b << h << row;
          ASSERT_EQ(std::isnan(at(63)), nan);
          ASSERT_EQ(std::isinf(at(0)), last && distribution == Distribution::inf_key);
          ASSERT_FALSE(std::isinf(at(63)));
        }
      }
    }
  }
}

// Keys before every query's window, as in a cache whose old rows were given up, and behind it.
TEST(Patterns, SpoilKeysAndValuesBesideAWindow) {
  ThreadPool pool(2);
  Problem p = problem_of(Dtype::bf16, Mask::none);  // 70 queries, 192 keys
  p.window_left = 30;
  p.window_right = 0;
  EXPECT_EQ(spoilt_key(p), 176);
  const HostTensors host(p, {.distribution = Distribution::nan_unseen}, pool);
  const Inputs in = host.inputs();
  for (const ConstTensorView& t : {in.k, in.v}) {
    for (int64_t row = 0; row < p.kv_len; ++row) {
      const float value = load_element(t.data, t.dtype, t.offset(1, 1, row) + 5);
      ASSERT_EQ(std::isnan(value), row < 192 - 70 - 30) << row;
    }
  }
}

}  // namespace
}  // namespace flashbench
