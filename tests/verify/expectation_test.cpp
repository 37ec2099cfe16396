// Every expectation holds for exact outputs and fails for a planted error.
#include "verify/expectation.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/half.h"
#include "attention_case.h"
#include "inputs/patterns.h"

namespace flashbench::verify {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Problem problem_of(Pass pass, Dtype dtype, Mask mask, int64_t q_len, int64_t kv_len) {
  return {.pass = pass,
          .dtype = dtype,
          .mask = mask,
          .batch = 2,
          .q_heads = 4,
          .kv_heads = 2,
          .q_len = q_len,
          .kv_len = kv_len,
          .head_dim = 16};
}

// With a head_dim of V's own: shorter and longer than that of Q and K.
constexpr std::array<std::optional<int64_t>, 3> kHeadDimsV{std::nullopt, 8, 24};

// A problem with outputs that are exact, rounded once.
class Exact {
 public:
  Exact(const Problem& problem, Distribution distribution, Device& device)
      : spec_{.distribution = distribution}, case_(problem, spec_, device) {
    const Oracle& oracle = case_.make_oracle();
    case_.run({});
    if (problem.pass == Pass::forward) {
      oracle.exact_forward(case_.outputs().o, case_.outputs().logsumexp);
    }
  }

  std::string wrong() {
    return broken_expectation(case_.problem, spec_, {}, case_.inputs(), case_.outputs());
  }

  // The error found after replacing one element of a tensor.
  std::string with(const TensorView& t, int64_t b, int64_t h, int64_t row, int64_t column,
                   float value) {
    const int64_t at = t.offset(b, h, row) + column;
    const float before = load_element(t.data, t.dtype, at);
    store_element(t.data, t.dtype, at, value);
    std::string sentence = wrong();
    store_element(t.data, t.dtype, at, before);
    return sentence;
  }

  // The next larger value of an element.
  float next(const TensorView& t, int64_t b, int64_t h, int64_t row, int64_t column) {
    const float x = load_element(t.data, t.dtype, t.offset(b, h, row) + column);
    for (float step = 1e-7f * std::abs(x) + 1e-7f;; step *= 2) {
      if (const float next = round_to(t.dtype, x + step); next != x) return next;
    }
  }

  Outputs outputs() { return case_.outputs(); }
  Inputs inputs() { return case_.inputs(); }

 private:
  InputSpec spec_;
  AttentionCase case_;
};

class ExpectationTest : public testing::Test {
 protected:
  const std::unique_ptr<Device> device_ = make_host_device(2);
};

TEST_F(ExpectationTest, EqualScoresGiveTheMeanToTheBit) {
  for (const Dtype dtype : kUnscaledDtypes) {
    Exact exact(problem_of(Pass::forward, dtype, Mask::causal_bottom_right, 40, 64),
                Distribution::equal_scores, *device_);
    EXPECT_EQ(exact.wrong(), "");
    const TensorView o = exact.outputs().o;
    // Row 39 sees 64 keys, row 7 sees 32, row 8 sees 33: not a power of two, left to the reference.
    for (const int64_t row : {39, 7}) {
      const std::string sentence = exact.with(o, 1, 2, row, 3, exact.next(o, 1, 2, row, 3));
      EXPECT_NE(sentence.find("must be"), std::string::npos) << name(dtype) << row;
      EXPECT_NE(sentence.find("batch 1, head 2"), std::string::npos) << sentence;
      EXPECT_NE(exact.with(o, 1, 2, row, 3, kNan), "");
    }
    EXPECT_EQ(exact.with(o, 1, 2, 8, 3, exact.next(o, 1, 2, 8, 3)), "");
  }
}

// The exact sum may be off in fp32's last bit, by which a mean in the middle falls either way.
TEST_F(ExpectationTest, AMeanInTheMiddleBetweenTwoValuesIsEither) {
  Exact exact(problem_of(Pass::forward, Dtype::bf16, Mask::none, 1, 4096),
              Distribution::equal_scores, *device_);
  const TensorView o = exact.outputs().o;
  const ConstTensorView v = exact.inputs().v;
  int middles = 0;
  for (int64_t h = 0; h < o.heads; ++h) {
    for (int64_t c = 0; c < o.head_dim; ++c) {
      float mean = 0;
      for (int64_t key = 0; key < v.length; ++key) {
        mean += load_element(v.data, v.dtype, v.offset(0, h / 2, key) + c) / 4096;
      }
      const float stored = load_element(o.data, o.dtype, o.offset(0, h, 0) + c);
      const float other = round_to(o.dtype, mean + (mean - stored) * 1.01f);
      if (stored == mean || std::abs(other - mean) != std::abs(stored - mean)) continue;
      ++middles;
      EXPECT_EQ(exact.with(o, 0, h, 0, c, other), "");
      const float beyond = other + (other - stored);
      EXPECT_NE(exact.with(o, 0, h, 0, c, beyond), "");
    }
  }
  EXPECT_GT(middles, 0);
}

TEST_F(ExpectationTest, EqualScoresGiveTheMeanOfTheWindow) {
  Problem p = problem_of(Pass::forward, Dtype::fp32, Mask::none, 40, 64);
  p.window_left = 11;
  p.window_right = 4;
  Exact exact(p, Distribution::equal_scores, *device_);
  EXPECT_EQ(exact.wrong(), "");
  const TensorView o = exact.outputs().o;
  EXPECT_NE(exact.with(o, 1, 2, 20, 3, exact.next(o, 1, 2, 20, 3)), "");  // sees 16 keys
}

TEST_F(ExpectationTest, OneHotIsARowOfVToTheBit) {
  for (const Dtype dtype : kUnscaledDtypes) {
    const Problem p = problem_of(Pass::forward, dtype, Mask::causal_top_left, 40, 64);
    Exact exact(p, Distribution::one_hot, *device_);
    EXPECT_EQ(exact.wrong(), "");
    const TensorView o = exact.outputs().o;
    EXPECT_NE(exact.with(o, 1, 3, 39, 15, exact.next(o, 1, 3, 39, 15)), "") << name(dtype);
    EXPECT_NE(exact.with(o, 0, 0, 0, 0, kNan), "");
  }
}

// Its last column and the one before it, where a loop over head_dim columns would look elsewhere.
TEST_F(ExpectationTest, EveryColumnOfOIsLookedAt) {
  for (const Distribution distribution :
       {Distribution::equal_scores, Distribution::one_hot, Distribution::nan_key}) {
    for (const auto head_dim_v : kHeadDimsV) {
      Problem p = problem_of(Pass::forward, Dtype::fp32, Mask::none, 40, 64);
      p.head_dim_v = head_dim_v;
      Exact exact(p, distribution, *device_);
      EXPECT_EQ(exact.wrong(), "") << name(distribution);
      const TensorView o = exact.outputs().o;
      EXPECT_EQ(o.head_dim, p.value_dim());
      for (const int64_t column : {o.head_dim - 1, o.head_dim - 2}) {
        EXPECT_NE(exact.with(o, 0, 3, 39, column, kNan), "") << name(distribution) << column;
      }
    }
  }
}

TEST_F(ExpectationTest, OneHotNamesTheRowThatWasReadInstead) {
  const Problem p = problem_of(Pass::forward, Dtype::bf16, Mask::none, 40, 64);
  Exact exact(p, Distribution::one_hot, *device_);
  const TensorView o = exact.outputs().o;
  const ConstTensorView v = exact.inputs().v;
  const int64_t key = one_hot_key(p, 1, 1, 2, 5).value();
  // Query head 2 reads K/V head 1; here it has read head 0.
  std::memcpy(static_cast<uint16_t*>(o.data) + o.offset(1, 2, 5),
              static_cast<const uint16_t*>(v.data) + v.offset(1, 0, key), 16 * sizeof(uint16_t));
  const std::string number = std::to_string(key);
  EXPECT_EQ(exact.wrong(), "o at batch 1, head 2, row 5 must be V of head 1, row " + number +
                               ", bit for bit, but is V of batch 1, head 0, row " + number +
                               ", or next to it");
}

TEST_F(ExpectationTest, ALoneKeyOfHugeScoreGivesItsRowToTheBit) {
  for (const Dtype dtype : kUnscaledDtypes) {
    Exact exact(problem_of(Pass::forward, dtype, Mask::causal_top_left, 40, 40),
                Distribution::huge_scores, *device_);
    EXPECT_EQ(exact.wrong(), "");
    const TensorView o = exact.outputs().o;
    EXPECT_NE(exact.with(o, 1, 3, 0, 2, exact.next(o, 1, 3, 0, 2)), "") << name(dtype);
    EXPECT_NE(exact.with(o, 0, 0, 0, 2, 0.0f), "");  // the result of a mask of finite size
    EXPECT_EQ(exact.with(o, 1, 3, 1, 2, exact.next(o, 1, 3, 1, 2)), "");
  }
}

// The NaN pattern that follows from the masks equals that of the reference's arithmetic: exact
// outputs pass.
TEST_F(ExpectationTest, NaNsOfTheReferenceAreWhereVisibilityPutsThem) {
  for (const Distribution distribution :
       {Distribution::nan_key, Distribution::inf_key, Distribution::nan_unseen}) {
    for (const Pass pass : kPasses) {
      for (const Mask mask : kMasks) {
        for (const auto& [q_len, kv_len] : {std::pair{40, 40}, {20, 50}, {50, 20}, {3, 1}}) {
          // A score of -infinity minus a logsumexp of -infinity is NaN in everything but the
          // reference.
          if (pass == Pass::backward && kv_len == 1) continue;
          Problem p = problem_of(pass, Dtype::fp32, mask, q_len, kv_len);
          for (const auto head_dim_v : kHeadDimsV) {
            p.head_dim_v = head_dim_v;
            EXPECT_EQ(Exact(p, distribution, *device_).wrong(), "")
                << name(distribution) << " " << p.id() << " " << p.value_dim();
          }
          if (kv_len == 1) continue;
          p.window_left = 5;
          p.window_right = 3;
          EXPECT_EQ(Exact(p, distribution, *device_).wrong(), "")
              << name(distribution) << " " << p.id() << " in a window";
        }
      }
    }
  }
}

TEST_F(ExpectationTest, AForwardRowThatAttendsToTheNaNMustBeNaNAndNoOther) {
  const Problem p = problem_of(Pass::forward, Dtype::fp16, Mask::causal_top_left, 40, 40);
  ASSERT_EQ(spoilt_key(p), 20);
  Exact exact(p, Distribution::nan_key, *device_);
  const Outputs out = exact.outputs();
  EXPECT_NE(exact.with(out.o, 1, 3, 20, 5, 0.5f), "");  // finite, though it sees the key
  EXPECT_NE(exact.with(out.o, 1, 2, 39, 5, std::numeric_limits<float>::infinity()), "");
  EXPECT_NE(exact.with(out.o, 1, 3, 19, 5, kNan), "");  // NaN, though it does not
  EXPECT_NE(exact.with(out.o, 1, 1, 30, 5, kNan), "");  // of the other K/V head
  EXPECT_NE(exact.with(out.o, 0, 3, 30, 5, kNan), "");  // of the other batch
  for (const auto& [row, value] : {std::pair{20, 1.0f}, {19, kNan}}) {
    float& logsumexp = out.logsumexp[(1 * 4 + 3) * 40 + row];
    const float before = logsumexp;
    logsumexp = value;
    EXPECT_NE(exact.wrong().find("logsumexp at batch 1, head 3"), std::string::npos);
    logsumexp = before;
  }
}

TEST_F(ExpectationTest, AnInfiniteScoreMasksOrSpoilsByItsSign) {
  const Problem p = problem_of(Pass::forward, Dtype::fp32, Mask::none, 40, 40);
  Exact exact(p, Distribution::inf_key, *device_);
  const Outputs out = exact.outputs();
  const ConstTensorView q = exact.inputs().q;
  int nan = 0, finite = 0;
  for (int64_t row = 0; row < 40; ++row) {
    const bool positive = load_element(q.data, q.dtype, q.offset(1, 2, row)) > 0;
    EXPECT_EQ(std::isnan(load_element(out.o.data, p.dtype, out.o.offset(1, 2, row))), positive);
    EXPECT_NE(exact.with(out.o, 1, 2, row, 0, positive ? 1.0f : kNan), "") << row;
    ++(positive ? nan : finite);
  }
  EXPECT_GT(nan, 5);
  EXPECT_GT(finite, 5);
}

TEST_F(ExpectationTest, GradientsAreNaNWhereANaNQueryReachesThem) {
  const Problem p = problem_of(Pass::backward, Dtype::fp32, Mask::causal_top_left, 40, 60);
  Exact exact(p, Distribution::nan_key, *device_);
  const Outputs out = exact.outputs();
  EXPECT_NE(exact.with(out.dq, 1, 3, 20, 5, 0.5f), "");
  EXPECT_NE(exact.with(out.dq, 1, 3, 19, 5, kNan), "");
  EXPECT_NE(exact.with(out.dk, 1, 1, 39, 5, 0.5f), "");  // the last key that a NaN query sees
  EXPECT_NE(exact.with(out.dk, 1, 1, 40, 5, kNan), "");  // no query sees it
  EXPECT_NE(exact.with(out.dk, 1, 0, 10, 5, kNan), "");
  EXPECT_NE(exact.with(out.dv, 1, 1, 0, 5, 0.5f), "");
  EXPECT_NE(exact.with(out.dv, 0, 1, 0, 5, kNan), "");
}

TEST_F(ExpectationTest, GradientsAreNaNFromTheFirstKeyOfTheWindowOn) {
  Problem p = problem_of(Pass::backward, Dtype::fp32, Mask::causal_top_left, 40, 60);
  p.window_left = 8;
  ASSERT_EQ(spoilt_key(p), 35);  // seen by queries 35 to 39, which see keys 27 to 39
  Exact exact(p, Distribution::nan_key, *device_);
  const Outputs out = exact.outputs();
  EXPECT_NE(exact.with(out.dq, 1, 3, 35, 5, 0.5f), "");
  EXPECT_NE(exact.with(out.dq, 1, 3, 34, 5, kNan), "");
  EXPECT_NE(exact.with(out.dk, 1, 1, 26, 5, kNan), "");
  EXPECT_NE(exact.with(out.dk, 1, 1, 27, 5, 0.5f), "");
}

TEST_F(ExpectationTest, KeysThatNoQuerySeesReachNothing) {
  Exact exact(problem_of(Pass::backward, Dtype::fp32, Mask::causal_top_left, 40, 60),
              Distribution::nan_unseen, *device_);
  const Outputs out = exact.outputs();
  EXPECT_EQ(load_element(out.dk.data, Dtype::fp32, out.dk.offset(0, 0, 50)), 0.0f);
  EXPECT_NE(exact.with(out.dk, 0, 0, 50, 0, kNan), "");
  EXPECT_NE(exact.with(out.dq, 0, 0, 5, 0, kNan), "");
}

// ---- requests of different lengths

Problem of_requests(Pass pass, Layout layout, Mask mask) {
  Problem p = problem_of(pass, Dtype::fp32, mask, 1, 1);
  p.layout = layout;
  p.set_lengths(std::make_shared<const Lengths>(
      std::vector<RequestLengths>{{9, 40}, {0, 5}, {20, 12}, {4, 0}, {6, 30}}));
  return p;
}

TEST_F(ExpectationTest, HoldForEachRequestByItself) {
  for (const Layout layout : kLayouts) {
    for (const Mask mask : kMasks) {
      for (const Distribution distribution :
           {Distribution::equal_scores, Distribution::one_hot, Distribution::huge_scores,
            Distribution::nan_key, Distribution::inf_key, Distribution::nan_unseen}) {
        for (const Pass pass : kPasses) {
          EXPECT_EQ(Exact(of_requests(pass, layout, mask), distribution, *device_).wrong(), "")
              << name(pass) << name(layout) << name(mask) << name(distribution);
        }
      }
    }
  }
}

TEST_F(ExpectationTest, ARowOfAnotherRequestIsNamed) {
  for (const Layout layout : kLayouts) {
    const Problem p = of_requests(Pass::forward, layout, Mask::none);
    Exact exact(p, Distribution::one_hot, *device_);
    const TensorView o = exact.outputs().o;
    const ConstTensorView v = exact.inputs().v;
    std::memcpy(static_cast<float*>(o.data) + o.offset(2, 3, 19),
                static_cast<const float*>(v.data) + v.offset(4, 1, 7), 16 * sizeof(float));
    const std::string sentence = exact.wrong();
    EXPECT_NE(sentence.find("o at batch 2, head 3, row 19 must be V of head 1"), std::string::npos)
        << sentence;
    EXPECT_NE(sentence.find("but is V of batch 4, head 1, row 7"), std::string::npos) << sentence;
  }
}

TEST_F(ExpectationTest, NaNsOfTheLastRequestReachNoOther) {
  for (const Layout layout : kLayouts) {
    const Problem p = of_requests(Pass::forward, layout, Mask::causal_bottom_right);
    ASSERT_EQ(spoilt_key(p.request(4)), 15);
    Exact exact(p, Distribution::nan_key, *device_);
    const Outputs out = exact.outputs();
    EXPECT_NE(exact.with(out.o, 4, 3, 0, 5, 0.5f), "");  // sees keys 0 to 24
    EXPECT_NE(exact.with(out.o, 2, 3, 15, 5, kNan), "");
    EXPECT_NE(exact.with(out.o, 3, 0, 3, 5, kNan), "");  // no keys
    float& logsumexp = out.logsumexp[p.query_index(3, 1, 2)];
    logsumexp = 0;
    EXPECT_NE(exact.wrong().find("logsumexp at batch 3, head 1, row 2"), std::string::npos);
  }
}

TEST_F(ExpectationTest, OtherInputsAreLeftToTheReference) {
  Exact exact(problem_of(Pass::forward, Dtype::fp32, Mask::none, 8, 8), Distribution::normal,
              *device_);
  EXPECT_EQ(exact.with(exact.outputs().o, 0, 0, 0, 0, kNan), "");
}

}  // namespace
}  // namespace flashbench::verify
