// Inf and NaN in the inputs reach the rows that attend to them, and no others; and rows without
// keys.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/half.h"
#include "attention_case.h"
#include "verify/exact.h"

namespace flashbench::verify {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Problem problem_of(Pass pass, Mask mask, int64_t q_len, int64_t kv_len) {
  Problem p;
  p.pass = pass;
  p.mask = mask;
  p.q_heads = 2;
  p.kv_heads = 2;
  p.q_len = q_len;
  p.kv_len = kv_len;
  p.head_dim = 8;
  return p;
}

// Changes an input; the test owns the inputs.
void spoil(const ConstTensorView& tensor, int64_t head, int64_t row, int64_t column, float value) {
  store_element(const_cast<void*>(tensor.data), tensor.dtype, tensor.offset(0, head, row) + column,
                value);
}

float found(const ConstTensorView& tensor, int64_t head, int64_t row, int64_t column) {
  return load_element(tensor.data, tensor.dtype, tensor.offset(0, head, row) + column);
}

class NonFinite : public testing::Test {
 protected:
  const std::unique_ptr<Device> device_ = make_host_device(2);
};

TEST_F(NonFinite, NanInKReachesTheRowsThatSeeIt) {
  AttentionCase attention(problem_of(Pass::forward, Mask::causal_top_left, 300, 300), {}, *device_);
  const Inputs inputs = attention.inputs();
  const Outputs outputs = attention.outputs();
  spoil(inputs.k, 1, 150, 3, kNan);
  attention.make_oracle().exact_forward(outputs.o, outputs.logsumexp);
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t row = 0; row < 300; ++row) {
      const bool sees = head == 1 && row >= 150;
      EXPECT_EQ(std::isnan(found(outputs.o, head, row, 0)), sees) << head << " " << row;
      EXPECT_EQ(std::isnan(outputs.logsumexp[head * 300 + row]), sees);
    }
  }
}

TEST_F(NonFinite, InfAndNanInVReachTheirColumnOfTheRowsThatSeeThem) {
  AttentionCase attention(problem_of(Pass::forward, Mask::causal_bottom_right, 300, 310), {},
                          *device_);
  const Inputs inputs = attention.inputs();
  const Outputs outputs = attention.outputs();
  spoil(inputs.v, 0, 200, 5, kInf);
  spoil(inputs.v, 0, 7, 2, kNan);
  attention.make_oracle().exact_forward(outputs.o, outputs.logsumexp);
  for (int64_t row = 0; row < 300; ++row) {
    EXPECT_EQ(found(outputs.o, 0, row, 5) == kInf, row + 10 >= 200) << row;
    EXPECT_TRUE(std::isfinite(found(outputs.o, 0, row, 4)));
    EXPECT_EQ(std::isnan(found(outputs.o, 0, row, 2)), row + 10 >= 7) << row;
    EXPECT_TRUE(std::isfinite(found(outputs.o, 1, row, 5)));
    EXPECT_TRUE(std::isfinite(outputs.logsumexp[row]));
  }
}

TEST_F(NonFinite, NothingBesideAWindowReachesARow) {
  Problem p = problem_of(Pass::forward, Mask::none, 300, 310);
  p.window_left = 30;
  p.window_right = 5;
  AttentionCase attention(p, {}, *device_);
  const Inputs inputs = attention.inputs();
  const Outputs outputs = attention.outputs();
  spoil(inputs.k, 0, 150, 3, kNan);
  spoil(inputs.v, 1, 150, 3, kInf);
  attention.make_oracle().exact_forward(outputs.o, outputs.logsumexp);
  for (int64_t row = 0; row < 300; ++row) {
    const bool sees = 150 >= row + 10 - 30 && 150 <= row + 10 + 5;
    EXPECT_EQ(std::isnan(found(outputs.o, 0, row, 0)), sees) << row;
    EXPECT_EQ(found(outputs.o, 1, row, 3) == kInf, sees) << row;
    EXPECT_TRUE(std::isfinite(found(outputs.o, 1, row, 2)));
  }
}

TEST_F(NonFinite, NanInDoReachesTheKeysThatItsRowSees) {
  const Problem p = problem_of(Pass::backward, Mask::causal_top_left, 300, 300);
  AttentionCase attention(p, {}, *device_);
  const Inputs inputs = attention.inputs();
  spoil(inputs.d_o, 0, 100, 6, kNan);
  const Oracle& oracle = attention.make_oracle();
  attention.run({});  // plain loops over visible keys: right by construction
  const Outputs outputs = attention.outputs();
  EXPECT_TRUE(oracle.judge(outputs).passed()) << oracle.judge(outputs).reason;
  for (int64_t row = 0; row < 300; ++row) {
    EXPECT_EQ(std::isnan(found(outputs.dv, 0, row, 6)), row <= 100);
    EXPECT_EQ(std::isnan(found(outputs.dk, 0, row, 0)), row <= 100);
    EXPECT_EQ(std::isnan(found(outputs.dq, 0, row, 0)), row == 100);
  }
  store_element(outputs.dv.data, p.dtype, outputs.dv.offset(0, 0, 101) + 6, kNan);
  EXPECT_FALSE(oracle.judge(outputs).passed());
}

TEST_F(NonFinite, SpoiledInputsOfEveryKindJudgeACorrectKernelAsPassed) {
  for (const Pass pass : kPasses) {
    for (const float value : {kNan, kInf}) {
      for (int tensor = 0; tensor < (pass == Pass::forward ? 3 : 4); ++tensor) {
        AttentionCase attention(problem_of(pass, Mask::causal_bottom_right, 90, 100), {}, *device_);
        const Inputs inputs = attention.inputs();
        const ConstTensorView views[] = {inputs.q, inputs.k, inputs.v, inputs.d_o};
        spoil(views[tensor], 1, 40, 1, value);
        attention.make_oracle();
        const Verdict verdict = attention.judge({});
        EXPECT_TRUE(verdict.passed())
            << name(pass) << " tensor " << tensor << " " << value << ": " << verdict.reason;
      }
    }
  }
}

TEST_F(NonFinite, WhereTheReferenceIsNotFiniteAFiniteValueFails) {
  AttentionCase attention(problem_of(Pass::forward, Mask::none, 40, 40), {}, *device_);
  const Inputs inputs = attention.inputs();
  spoil(inputs.v, 0, 20, 5, kInf);
  spoil(inputs.v, 1, 20, 5, kNan);
  const Oracle& oracle = attention.make_oracle();
  const Outputs outputs = attention.outputs();
  for (const auto& [head, value, passes] : {std::tuple<int64_t, float, bool>{0, kInf, true},
                                            {0, -kInf, false},
                                            {0, kNan, false},
                                            {0, 3.0f, false},
                                            {1, -kNan, true},
                                            {1, kInf, false},
                                            {1, 0.0f, false}}) {
    attention.run({});
    store_element(outputs.o.data, Dtype::fp32, outputs.o.offset(0, head, 11) + 5, value);
    const Verdict verdict = oracle.judge(outputs);
    EXPECT_EQ(verdict.passed(), passes) << head << " " << value;
    EXPECT_EQ(verdict.tensors[0].nonfinite, passes ? 0 : 1);
  }
}

TEST_F(NonFinite, RowsWithoutKeysAreZeroAndMinusInfinity) {
  for (const Dtype dtype : kUnscaledDtypes) {
    Problem p = problem_of(Pass::forward, Mask::causal_bottom_right, 300, 10);
    p.dtype = dtype;
    AttentionCase attention(p, {}, *device_);
    const Oracle& oracle = attention.make_oracle();
    const Outputs outputs = attention.outputs();
    EXPECT_TRUE(attention.judge({}).passed()) << attention.judge({}).reason;
    EXPECT_EQ(found(outputs.o, 1, 289, 0), 0);
    EXPECT_EQ(outputs.logsumexp[289], -kInf);

    store_element(outputs.o.data, dtype, outputs.o.offset(0, 1, 289), 1e-3f);
    EXPECT_FALSE(oracle.judge(outputs).passed());
    attention.run({});
    outputs.logsumexp[289] = -3e38f;
    EXPECT_FALSE(oracle.judge(outputs).passed());
  }
}

TEST_F(NonFinite, RowsWithoutKeysAddNothingToGradients) {
  AttentionCase attention(problem_of(Pass::backward, Mask::causal_bottom_right, 300, 10), {},
                          *device_);
  attention.make_oracle();
  const Verdict verdict = attention.judge({});
  EXPECT_TRUE(verdict.passed()) << verdict.reason;
  EXPECT_EQ(found(attention.outputs().dq, 0, 289, 3), 0);
}

TEST_F(NonFinite, OverflowOfTheDtypeIsInfinity) {
  Problem p = problem_of(Pass::backward, Mask::none, 64, 1);
  p.dtype = Dtype::fp16;
  AttentionCase attention(p, {}, *device_);
  const Inputs inputs = attention.inputs();
  for (int64_t row = 0; row < 64; ++row) spoil(inputs.d_o, 0, row, 2, -60000.0f);
  const Oracle& oracle = attention.make_oracle();
  const Outputs outputs = attention.outputs();
  EXPECT_TRUE(attention.judge({}).passed()) << attention.judge({}).reason;
  EXPECT_EQ(found(outputs.dv, 0, 0, 2), -kInf);  // -3.84e6
  store_element(outputs.dv.data, p.dtype, outputs.dv.offset(0, 0, 0) + 2, kInf);
  EXPECT_FALSE(oracle.judge(outputs).passed());
}

TEST_F(NonFinite, AScoreOfMinusInfinityIsAMaskedKey) {
  AttentionCase attention(problem_of(Pass::forward, Mask::none, 8, 3), {}, *device_);
  const Inputs inputs = attention.inputs();
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t column = 0; column < 8; ++column) spoil(inputs.q, 0, row, column, 1.0f);
  }
  spoil(inputs.k, 0, 1, 0, -kInf);
  const Outputs outputs = attention.outputs();
  attention.make_oracle().exact_forward(outputs.o, outputs.logsumexp);
  EXPECT_TRUE(std::isfinite(outputs.logsumexp[0]));
  EXPECT_TRUE(std::isfinite(found(outputs.o, 0, 0, 0)));
  for (const int64_t key : {0, 2}) spoil(inputs.k, 0, key, 0, -kInf);
  attention.make_oracle().exact_forward(outputs.o, outputs.logsumexp);
  EXPECT_EQ(outputs.logsumexp[0], -kInf);
  EXPECT_EQ(found(outputs.o, 0, 0, 0), 0);
}

}  // namespace

}  // namespace flashbench::verify
