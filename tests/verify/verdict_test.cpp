// Which outputs pass: correct kernels in every dtype do, single wrong elements in their outputs do
// not. Kernels with planted defects: tests/mutants/.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention/half.h"
#include "attention_case.h"
#include "verify/coarse.h"
#include "verify/oracle.h"
#include "verify/verdict.h"

namespace flashbench::verify {

namespace {

using testing::HasSubstr;

Problem problem_of(Pass pass, Dtype dtype, Mask mask, int64_t q_len, int64_t kv_len) {
  Problem p;
  p.pass = pass;
  p.dtype = dtype;
  p.mask = mask;
  p.q_heads = 4;
  p.kv_heads = 2;
  p.q_len = q_len;
  p.kv_len = kv_len;
  p.head_dim = 32;
  return p;
}

const TensorError& tensor(const Verdict& verdict, std::string_view name) {
  for (const TensorError& error : verdict.tensors) {
    if (error.tensor == name) return error;
  }
  throw std::out_of_range(std::string(name));
}

class Verdicts : public testing::TestWithParam<std::tuple<Pass, Dtype>> {
 protected:
  Pass pass() const { return std::get<0>(GetParam()); }
  Dtype dtype() const { return std::get<1>(GetParam()); }
  const std::unique_ptr<Device> device_ = make_host_device(2);
};

INSTANTIATE_TEST_SUITE_P(All, Verdicts,
                         testing::Combine(testing::ValuesIn(kPasses),
                                          testing::ValuesIn(kUnscaledDtypes)),
                         [](const auto& instance) {
                           return std::string(name(std::get<0>(instance.param))) + "_" +
                                  std::string(name(std::get<1>(instance.param)));
                         });

TEST_P(Verdicts, CorrectKernelsPassWithRoom) {
  for (const Mask mask : kMasks) {
    for (const auto& [q_len, kv_len] : {std::pair<int64_t, int64_t>{100, 150}, {150, 100}}) {
      for (const Distribution distribution :
           {Distribution::normal, Distribution::uniform, Distribution::outliers}) {
        AttentionCase attention(problem_of(pass(), dtype(), mask, q_len, kv_len),
                                {distribution, 3, {}, {}, {}, {}}, *device_);
        attention.make_oracle();
        for (const Simulation& simulation :
             {Simulation{64, true}, Simulation{48, false}, Simulation{64, true, true}}) {
          const Verdict verdict = attention.judge(simulation);
          EXPECT_TRUE(verdict.passed()) << verdict.reason;
          EXPECT_FALSE(verdict.sampled);
          EXPECT_EQ(verdict.checked_fraction, 1);
          for (const TensorError& error : verdict.tensors) {
            EXPECT_LT(error.lambda, 3) << attention.problem.id() << " " << error.tensor;
          }
        }
      }
    }
  }
}

// With scores in the hundreds most P are subnormal or 0 in fp32. With a mean in K and V the errors
// of D and of the sums dominate.
TEST_P(Verdicts, CorrectKernelsPassOnExtremeInputs) {
  for (const double scale : {3.0, -40.0}) {
    Problem p = problem_of(pass(), dtype(), Mask::causal_bottom_right, 60, 200);
    p.scale = scale;
    AttentionCase attention(p, {}, *device_);
    attention.make_oracle();
    const Verdict verdict = attention.judge({});
    EXPECT_TRUE(verdict.passed()) << verdict.reason;
  }
  AttentionCase attention(problem_of(pass(), dtype(), Mask::none, 60, 200), {}, *device_);
  for (const ConstTensorView& tensor : {attention.inputs().k, attention.inputs().v}) {
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      store_element(const_cast<void*>(tensor.data), dtype(), i,
                    load_element(tensor.data, dtype(), i) + 5);
    }
  }
  attention.make_oracle();
  const Verdict verdict = attention.judge({});
  EXPECT_TRUE(verdict.passed()) << verdict.reason;
}

// Scores stored in 16 bits fail as a loss of accuracy unless the provider declares them; defects
// are found in either case.
TEST_P(Verdicts, ScoresStoredInTheDtypeAreAllowedForWhereTheyAreAnnounced) {
  if (dtype() == Dtype::fp32) GTEST_SKIP() << "fp32 scores are not rounded";
  const Simulation stored{64, true, true, false, Defect::none, true};
  for (const Mask mask : kMasks) {
    for (const Distribution distribution :
         {Distribution::normal, Distribution::uniform, Distribution::outliers}) {
      Problem p = problem_of(pass(), dtype(), mask, 200, 300);
      p.head_dim = 64;
      AttentionCase attention(p, {distribution, 3, {}, {}, {}, {}}, *device_);
      attention.make_oracle({}, dtype());
      const Verdict verdict = attention.judge(stored);
      EXPECT_TRUE(verdict.passed()) << verdict.reason;
      for (const TensorError& error : verdict.tensors) {
        EXPECT_LT(error.lambda, 3) << p.id() << " " << name(distribution) << " " << error.tensor;
      }
      for (const Defect defect : {Defect::dropped_key_tile, Defect::zeros, Defect::stale_row}) {
        Simulation broken = stored;
        broken.defect = defect;
        EXPECT_FALSE(attention.judge(broken).passed()) << p.id() << " " << name(defect);
      }
    }
  }
  if (pass() == Pass::backward) return;  // gradients hide it
  AttentionCase attention(problem_of(pass(), dtype(), Mask::none, 100, 150), {}, *device_);
  attention.make_oracle();
  EXPECT_FALSE(attention.judge(stored).passed());
}

Simulation split_into(int64_t splits, Dtype partials, Defect defect = Defect::none) {
  Simulation simulation{.p_in_dtype = false, .defect = defect};
  simulation.splits = splits;
  simulation.partials = partials;
  return simulation;
}

// A kernel that splits keys and merges in fp32 is judged as any other, whatever the splits.
TEST_P(Verdicts, KernelsThatSplitKeysPassWithRoom) {
  if (pass() == Pass::backward) GTEST_SKIP() << "only O has partial results";
  AttentionCase attention(problem_of(pass(), dtype(), Mask::causal_bottom_right, 40, 300), {},
                          *device_);
  attention.make_oracle();
  for (const int64_t splits : {1, 2, 3, 7, 300}) {
    const Verdict verdict = attention.judge(split_into(splits, Dtype::fp32));
    EXPECT_TRUE(verdict.passed()) << verdict.reason;
    for (const TensorError& error : verdict.tensors) EXPECT_LT(error.lambda, 3) << splits;
  }
}

// Partial results in fewer bits than the dtype's P fail unless the provider declares them; defects
// are found in either case.
TEST_P(Verdicts, PartialResultsInFewerBitsAreAllowedForWhereTheyAreDeclared) {
  if (pass() == Pass::backward) GTEST_SKIP() << "only O has partial results";
  for (const Dtype partials : {Dtype::fp16, Dtype::bf16}) {
    for (const Distribution distribution :
         {Distribution::normal, Distribution::uniform, Distribution::outliers}) {
      for (const int64_t kv_len : {300, 4000}) {
        const Problem p = problem_of(pass(), dtype(), Mask::none, 8, kv_len);
        AttentionCase attention(p, {distribution, 3, {}, {}, {}, {}}, *device_);
        attention.make_oracle({}, {Dtype::fp32, partials});
        for (const int64_t splits : {2, 3, 7, 100}) {
          const Verdict verdict = attention.judge(split_into(splits, partials));
          EXPECT_TRUE(verdict.passed()) << splits << " " << verdict.reason;
          for (const TensorError& error : verdict.tensors) {
            EXPECT_LT(error.lambda, 3) << p.id() << " " << error.tensor << " splits " << splits;
          }
        }
        for (const Defect defect : {Defect::dropped_key_tile, Defect::zeros, Defect::stale_row}) {
          EXPECT_FALSE(attention.judge(split_into(7, partials, defect)).passed())
              << p.id() << " " << name(defect);
        }
      }
    }
    const bool fewer_bits =
        dtype() == Dtype::fp32 || (dtype() == Dtype::fp16 && partials == Dtype::bf16);
    if (!fewer_bits) continue;  // no more error than P in the dtype has
    AttentionCase attention(problem_of(pass(), dtype(), Mask::none, 100, 300), {}, *device_);
    attention.make_oracle();
    for (const int64_t splits : {2, 7}) {
      EXPECT_FALSE(attention.judge(split_into(splits, partials)).passed()) << splits;
    }
  }
}

// With keys that all weigh the same and a V that has a mean, a part's O is as large as O.
TEST_P(Verdicts, PartialResultsThatAreAlikeStayWithinTheBound) {
  if (pass() == Pass::backward) GTEST_SKIP() << "only O has partial results";
  AttentionCase attention(problem_of(pass(), dtype(), Mask::none, 20, 1000), {}, *device_);
  const ConstTensorView v = attention.inputs().v;
  for (int64_t i = 0; i < v.elements(); ++i) {
    store_element(const_cast<void*>(v.data), dtype(), i, load_element(v.data, dtype(), i) + 5);
  }
  attention.make_oracle({}, {Dtype::fp32, Dtype::bf16});
  for (const int64_t splits : {2, 7, 50}) {
    const Verdict verdict = attention.judge(split_into(splits, Dtype::bf16));
    EXPECT_TRUE(verdict.passed()) << verdict.reason;
    EXPECT_LT(verdict.tensors[0].lambda, 3);
  }
}

// cuDNN does this. Few queries and many keys give the smallest dS, subnormal ones in fp16.
TEST_P(Verdicts, TheScaleMayBeInDsWhenItIsRounded) {
  Problem p = problem_of(pass(), dtype(), Mask::none, 4, 4000);
  p.head_dim = 256;
  AttentionCase attention(p, {}, *device_);
  attention.make_oracle();
  Simulation scaled;
  scaled.ds_scaled = true;
  for (const TensorError& error : attention.judge(scaled).tensors) {
    EXPECT_LT(error.lambda, 3) << error.tensor;
  }
}

TEST_P(Verdicts, OneWrongElementIsFoundAndNamed) {
  AttentionCase attention(problem_of(pass(), dtype(), Mask::none, 100, 150), {}, *device_);
  const Oracle& oracle = attention.make_oracle();
  attention.run({});
  const Outputs outputs = attention.outputs();
  const TensorView& victim = pass() == Pass::forward ? outputs.o : outputs.dk;
  const int64_t index = victim.offset(0, 1, 77) + 13;
  const float was = load_element(victim.data, dtype(), index);
  store_element(victim.data, dtype(), index, was + 0.5f);
  const Verdict verdict = oracle.judge(outputs);
  const std::string name = pass() == Pass::forward ? "o" : "dk";
  EXPECT_EQ(verdict.status, Verdict::Status::failed);
  EXPECT_THAT(verdict.reason, HasSubstr(name + " is off by "));
  EXPECT_THAT(verdict.reason, HasSubstr("batch 0, head 1, row 77, column 13: found "));
  EXPECT_EQ(tensor(verdict, name).worst, (std::array<int64_t, 4>{0, 1, 77, 13}));
  EXPECT_NEAR(tensor(verdict, name).max_abs, 0.5, 0.01);
  for (const TensorError& error : verdict.tensors) {
    EXPECT_EQ(error.passed, error.tensor != name) << error.tensor;
  }
}

TEST_P(Verdicts, ANonFiniteElementFailsWhateverElseIsRight) {
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    AttentionCase attention(problem_of(pass(), dtype(), Mask::none, 100, 150), {}, *device_);
    const Oracle& oracle = attention.make_oracle();
    attention.run({});
    const Outputs outputs = attention.outputs();
    const TensorView& victim = pass() == Pass::forward ? outputs.o : outputs.dv;
    store_element(victim.data, dtype(), victim.offset(0, 1, 99) + 31, wrong);
    const Verdict verdict = oracle.judge(outputs);
    const TensorError& error = tensor(verdict, pass() == Pass::forward ? "o" : "dv");
    EXPECT_FALSE(verdict.passed());
    EXPECT_FALSE(error.passed);
    EXPECT_EQ(error.nonfinite, 1);
    EXPECT_EQ(error.worst, (std::array<int64_t, 4>{0, 1, 99, 31}));
    EXPECT_TRUE(std::isfinite(error.max_abs) && std::isfinite(error.lambda));
    EXPECT_THAT(verdict.reason, HasSubstr("head 1, row 99, column 31"));
  }
}

// The definition of the ratio, with the naive computation written out again.
TEST(Ratio, IsTheErrorInUnitsOfTheNaiveOne) {
  const std::unique_ptr<Device> device = make_host_device(1);
  Problem p = problem_of(Pass::forward, Dtype::bf16, Mask::none, 3, 40);
  p.q_heads = p.kv_heads = 1;
  AttentionCase attention(p, {}, *device);
  const Oracle& oracle = attention.make_oracle();
  const Inputs inputs = attention.inputs();
  const Outputs outputs = attention.outputs();
  const auto at = [&](const ConstTensorView& view, int64_t row, int64_t column) {
    return load_element(view.data, view.dtype, view.offset(0, 0, row) + column);
  };
  for (int64_t row = 0; row < p.q_len; ++row) {
    std::vector<float> weights(static_cast<size_t>(p.kv_len));
    float max = -std::numeric_limits<float>::infinity(), sum = 0;
    for (size_t key = 0; key < weights.size(); ++key) {
      float dot = 0;
      for (int64_t column = 0; column < p.head_dim; ++column) {
        dot += at(inputs.q, row, column) * at(inputs.k, static_cast<int64_t>(key), column);
      }
      weights[key] = round_to(p.dtype, dot * static_cast<float>(p.softmax_scale()));
      max = std::max(max, weights[key]);
    }
    for (const float score : weights) sum += std::exp(score - max);
    for (float& weight : weights) weight = round_to(p.dtype, std::exp(weight - max) / sum);
    for (int64_t column = 0; column < p.head_dim; ++column) {
      float o = 0;
      for (size_t key = 0; key < weights.size(); ++key) {
        o += weights[key] * at(inputs.v, static_cast<int64_t>(key), column);
      }
      store_element(outputs.o.data, p.dtype, outputs.o.offset(0, 0, row) + column, o);
    }
    outputs.logsumexp[row] = max + std::log(sum);
  }
  const Verdict verdict = oracle.judge(outputs);
  EXPECT_NEAR(tensor(verdict, "o").ratio, 1, 1e-3);
  EXPECT_NEAR(tensor(verdict, "logsumexp").ratio, 1, 1e-3);
}

TEST(Ratio, IsFiniteWhereTheNaiveComputationIsExact) {
  const std::unique_ptr<Device> device = make_host_device(1);
  AttentionCase attention(problem_of(Pass::forward, Dtype::fp16, Mask::none, 5, 1), {}, *device);
  const Oracle& oracle = attention.make_oracle();  // one key: O is V
  EXPECT_EQ(tensor(attention.judge({}), "o").ratio, 0);
  const Outputs outputs = attention.outputs();
  const float was = load_element(outputs.o.data, Dtype::fp16, 0);
  store_element(outputs.o.data, Dtype::fp16, 0, was * 1.002f);
  const double ratio = tensor(oracle.judge(outputs), "o").ratio;
  EXPECT_GT(ratio, 10);
  EXPECT_TRUE(std::isfinite(ratio));
}

TEST(Ratio, IsFiniteWhereTheReferenceIsZero) {
  const std::unique_ptr<Device> device = make_host_device(1);  // one key: dS is 0
  AttentionCase attention(problem_of(Pass::backward, Dtype::fp32, Mask::none, 5, 1), {}, *device);
  const Oracle& oracle = attention.make_oracle();
  attention.run({});
  const Outputs outputs = attention.outputs();
  static_cast<float*>(outputs.dq.data)[3] = 1.0f;
  const TensorError dq = tensor(oracle.judge(outputs), "dq");
  EXPECT_FALSE(dq.passed);
  EXPECT_GT(dq.ratio, 1e3);
  EXPECT_TRUE(std::isfinite(dq.ratio));
}

TEST(Verdict, ABoundThatIsNotFiniteExcusesNothing) {
  ThreadPool pool(1);
  const std::vector<RowBlock> blocks{{0, 0, {0, 1}}, {0, 0, {2}}};
  Reference reference("o", Dtype::fp32, 2, blocks);
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t column = 0; column < 2; ++column) {
      reference.value.row(row)[column] = 1;
      reference.bound.row(row)[column] = 1;
    }
  }
  std::vector<float> found{1, 1.5f, 1, 1.5f, 1, 1.5f};
  const ConstTensorView view =
      dense_view<const void>(found.data(), Dtype::fp32, Layout::bhsd, 1, 1, 3, 2);
  EXPECT_TRUE(judge_tensor(reference, view, pool).error.passed);
  for (const float bound :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    reference.bound.row(0)[1] = bound;
    const Judgement judgement = judge_tensor(reference, view, pool);
    EXPECT_FALSE(judgement.error.passed);
    EXPECT_EQ(judgement.error.worst, (std::array<int64_t, 4>{0, 0, 0, 1}));
    EXPECT_THAT(judgement.reason, HasSubstr("row 0, column 1"));
  }
}

// One element of a tensor.
bool passes(Dtype dtype, double exact, float bound, float found) {
  ThreadPool pool(1);
  const std::vector<RowBlock> blocks{{0, 0, {0}}};
  Reference reference("o", dtype, 1, blocks);
  *reference.value.row(0) = exact;
  *reference.bound.row(0) = bound;
  std::vector<std::byte> stored(sizeof(float));
  store_element(stored.data(), dtype, 0, found);
  const ConstTensorView view =
      dense_view<const void>(stored.data(), dtype, Layout::bhsd, 1, 1, 1, 1);
  return judge_tensor(reference, view, pool).error.passed;
}

TEST(Verdict, AnInfinityIsRightWhereRoundingExplainsItWhateverTheSigns) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float sign : {1.0f, -1.0f}) {
    EXPECT_TRUE(passes(Dtype::fp16, sign * 1e5, 0, sign * inf));
    EXPECT_FALSE(passes(Dtype::fp16, sign * 1e5, 0, -sign * inf));
    EXPECT_FALSE(passes(Dtype::fp16, sign * 60000, 1, sign * inf));
    for (const double exact : {0.0, -0.0, 1.0, -1.0}) {
      EXPECT_TRUE(passes(Dtype::fp16, exact, 1e5f, sign * inf)) << exact;
      EXPECT_FALSE(passes(Dtype::fp16, exact, 1, sign * inf)) << exact;
      EXPECT_FALSE(passes(Dtype::fp16, exact, inf, sign * inf)) << exact;
    }
  }
}

TEST(Verdict, RootMeanSquareIsInUnitsOfTheExactValues) {
  ThreadPool pool(1);
  const std::vector<RowBlock> blocks{{0, 0, {0}}, {0, 0, {1}}};
  Reference reference("o", Dtype::fp32, 1, blocks);
  *reference.value.row(0) = 3;
  *reference.value.row(1) = 4;
  *reference.bound.row(0) = *reference.bound.row(1) = 0.5f;
  std::vector<float> found{3, 4.5f};
  const ConstTensorView view =
      dense_view<const void>(found.data(), Dtype::fp32, Layout::bhsd, 1, 1, 2, 1);
  const TensorError error = judge_tensor(reference, view, pool).error;
  EXPECT_DOUBLE_EQ(*error.rel_rms_err, 0.1);
  EXPECT_NEAR(*error.rel_rms_explained, std::sqrt(0.5) / 5, 1e-6);

  for (const double nothing : {0.0, 1e-40}) {
    *reference.value.row(0) = *reference.value.row(1) = nothing;
    EXPECT_FALSE(judge_tensor(reference, view, pool).error.rel_rms_err);
  }
}

// ---- within the bound of its scores, but far off

// All keys have a large common component, so that scores are large and nearly equal.
void offset_keys(AttentionCase& attention, float offset) {
  const ConstTensorView& k = attention.inputs().k;
  for (int64_t i = 0; i < k.elements(); i += k.head_dim) {
    store_element(const_cast<void*>(k.data), k.dtype, i, load_element(k.data, k.dtype, i) + offset);
  }
}

constexpr Simulation kStoredScores{64, true, true, false, Defect::none, true};

TEST(Coarse, StoredScoresAreWhereTheyLoseTheGradient) {
  const std::unique_ptr<Device> device = make_host_device(2);
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    AttentionCase attention(problem_of(Pass::backward, dtype, Mask::none, 100, 150), {}, *device);
    offset_keys(attention, dtype == Dtype::bf16 ? 128 : 256);
    attention.make_oracle({}, dtype);
    const Verdict allowed = attention.judge(kStoredScores);
    EXPECT_TRUE(allowed.passed()) << allowed.reason;
    ASSERT_TRUE(is_remarkable(allowed, dtype));
    attention.make_oracle();
    EXPECT_THAT(why_coarse(attention.judge(kStoredScores), dtype, dtype),
                HasSubstr(dtype == Dtype::bf16 ? "stores its scores in bf16" : "in fp16"));
    for (const Simulation& right : {Simulation{64, true, true}, Simulation{48, false}}) {
      EXPECT_EQ(why_coarse(attention.judge(right), dtype, Dtype::fp32), "");
    }
  }
}

TEST(Coarse, ASampleShowsItToo) {
  const std::unique_ptr<Device> device = make_host_device(2);
  AttentionCase attention(problem_of(Pass::backward, Dtype::bf16, Mask::none, 200, 300), {},
                          *device);
  offset_keys(attention, 128);
  const OracleBudget few{1e6};
  attention.make_oracle(few);
  const Verdict verdict = attention.judge(kStoredScores);
  EXPECT_TRUE(verdict.sampled);
  EXPECT_NE(why_coarse(verdict, Dtype::bf16, Dtype::bf16), "");
  EXPECT_EQ(why_coarse(attention.judge({}), Dtype::bf16, Dtype::fp32), "");
}

TEST(Coarse, AGradientThatCancelsIsNot) {
  const std::unique_ptr<Device> device = make_host_device(2);
  AttentionCase attention(problem_of(Pass::backward, Dtype::bf16, Mask::none, 100, 150), {},
                          *device);
  const ConstTensorView& v = attention.inputs().v;  // almost equal rows: dS is nearly 0
  for (int64_t i = 0; i < v.elements(); ++i) {
    store_element(const_cast<void*>(v.data), v.dtype, i, 1 + (i % 7 == 0 ? 0x1p-7f : 0));
  }
  attention.make_oracle();
  const Verdict verdict = attention.judge({});
  EXPECT_TRUE(verdict.passed()) << verdict.reason;
  EXPECT_TRUE(is_remarkable(verdict, Dtype::bf16));
  EXPECT_EQ(why_coarse(verdict, Dtype::bf16, Dtype::fp32), "");
}

TEST_P(Verdicts, CorrectKernelsAreNotCoarse) {
  for (const Distribution distribution :
       {Distribution::normal, Distribution::outliers, Distribution::huge_scores,
        Distribution::equal_scores, Distribution::one_hot}) {
    for (const int64_t kv_len : {1, 2, 150}) {
      AttentionCase attention(problem_of(pass(), dtype(), Mask::none, 3, kv_len),
                              {distribution, 3, {}, {}, {}, {}}, *device_);
      attention.make_oracle();
      const Verdict verdict = attention.judge({});
      EXPECT_TRUE(verdict.passed()) << verdict.reason;
      EXPECT_EQ(why_coarse(verdict, dtype(), Dtype::fp32), "") << attention.problem.id();
    }
  }
}

TEST(Verdict, LogsumexpsBeyondWhatFp32HoldsAreNamed) {
  const std::unique_ptr<Device> device = make_host_device(2);
  for (const double scale : {1.0, 1e7}) {
    Problem p = problem_of(Pass::backward, Dtype::fp32, Mask::none, 40, 60);
    p.scale = scale;
    AttentionCase attention(p, {}, *device);
    attention.make_oracle();
    Simulation simulation;
    if (scale == 1.0) simulation.defect = Defect::zeros;
    const Verdict verdict = attention.judge(simulation);
    EXPECT_FALSE(verdict.passed());
    const bool named = verdict.reason.find("which fp32 holds to +-") != std::string::npos;
    EXPECT_EQ(named, scale > 1) << verdict.reason;
  }
}

TEST(Verdict, MeanErrorIsOverAllElements) {
  const std::unique_ptr<Device> device = make_host_device(1);
  AttentionCase attention(problem_of(Pass::forward, Dtype::fp32, Mask::none, 5, 1), {}, *device);
  const Oracle& oracle = attention.make_oracle();
  attention.run({});
  const Outputs outputs = attention.outputs();
  static_cast<float*>(outputs.o.data)[3] += 1.28f;
  const TensorError error = tensor(oracle.judge(outputs), "o");
  EXPECT_EQ(error.checked, 4 * 5 * 32);
  EXPECT_NEAR(error.mean_abs, 1.28 / (4 * 5 * 32), 1e-9);
}

}  // namespace

}  // namespace flashbench::verify
