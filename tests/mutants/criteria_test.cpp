// Each criterion on examples small enough to compute by hand, and the eager computation against one
// that is written out.
#include "mutants/criteria.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/half.h"
#include "mutants/eager.h"
#include "verify/attention_case.h"

namespace flashbench::verify {
namespace {

// A tensor with one element.
ComparedTensor one(std::string tensor, Dtype dtype, double exact, double found, double eager) {
  return {
      std::move(tensor), dtype, {static_cast<float>(found)}, {exact}, {static_cast<float>(eager)}};
}

bool accepted(Criterion criterion, const ComparedTensor& compared) {
  return accepts(criterion, compared).value();
}

TEST(Criteria, FlashAttention2TakesTwiceTheErrorOfEagerAndThriceForGradients) {
  const auto compared = [](const char* tensor, double found) {
    return one(tensor, Dtype::fp16, 0.5, 0.5 + found, 0.5 - 0.01);
  };
  EXPECT_TRUE(accepted(Criterion::flash_attention_2, compared("o", 0.0199)));
  EXPECT_FALSE(accepted(Criterion::flash_attention_2, compared("o", 0.0201)));
  EXPECT_TRUE(accepted(Criterion::flash_attention_2, compared("dq", 0.0299)));
  EXPECT_FALSE(accepted(Criterion::flash_attention_2, compared("dk", 0.0301)));
}

TEST(Criteria, FlashAttentionComparesWithTheRoundedResult) {
  const double exact = 1 + 0x1p-12;  // 1 in fp16
  EXPECT_TRUE(accepted(Criterion::flash_attention_2, one("o", Dtype::fp16, exact, 1, 1)));
  EXPECT_FALSE(
      accepted(Criterion::flash_attention_2, one("o", Dtype::fp16, exact, 1 + 0x1p-10, 1)));
}

// In bf16, 0.0625 + 0.3 is 0.36328125, and that minus 0.3 is 0.06347656 (0.3 is rounded to fp32
// only): the error is 0.0009765625, and twice that is allowed.
TEST(Criteria, FlashAttention3ForgivesTwiceWhatIsLostBeside0_3) {
  const auto compared = [](double found) {
    return one("dv", Dtype::bf16, 0.0625, 0.0625 + found, 0.0625 - 0.001);
  };
  EXPECT_TRUE(accepted(Criterion::flash_attention_3, compared(0.002 + 2 * 0.00097 - 1e-5)));
  EXPECT_FALSE(accepted(Criterion::flash_attention_3, compared(0.002 + 2 * 0.00098 + 1e-5)));
}

TEST(Criteria, CudnnTakesTwoHundredthsAndMoreForKeyGradientsInBf16) {
  const auto accepted_error = [](const char* tensor, Dtype dtype, double error) {
    return accepted(Criterion::cudnn_frontend, one(tensor, dtype, 1, 1 + error, 1));
  };
  EXPECT_TRUE(accepted_error("o", Dtype::bf16, 0.0399));
  EXPECT_FALSE(accepted_error("o", Dtype::bf16, 0.0401));
  EXPECT_FALSE(accepted_error("dq", Dtype::bf16, 0.0401));
  EXPECT_TRUE(accepted_error("dk", Dtype::bf16, 0.0899));
  EXPECT_FALSE(accepted_error("dv", Dtype::bf16, 0.0901));
  EXPECT_FALSE(accepted_error("dk", Dtype::fp16, 0.0401));
}

TEST(Criteria, CutlassBoundsTheLargestAndTheMeanErrorAndLosesANaNFromTheFirst) {
  ComparedTensor compared{"o", Dtype::fp16, {}, {}, {}};
  compared.found.assign(100, 0);
  compared.exact.assign(100, 0);
  compared.eager.assign(100, 0);
  compared.found[3] = 0.0099f;
  EXPECT_TRUE(accepted(Criterion::cutlass_88, compared));
  compared.found[3] = 0.0101f;
  EXPECT_FALSE(accepted(Criterion::cutlass_88, compared));
  compared.found.assign(100, 0.0011f);
  EXPECT_FALSE(accepted(Criterion::cutlass_88, compared));
  compared.found.assign(100, 0);
  compared.found[3] = std::numeric_limits<float>::quiet_NaN();  // which makes the mean NaN
  EXPECT_FALSE(accepted(Criterion::cutlass_88, compared));
}

TEST(Criteria, FlashInferTakesAThousandthOrAHundredthAndHasNoGradients) {
  const auto compared = [](Dtype dtype, double error) { return one("o", dtype, 1, 1 + error, 1); };
  EXPECT_TRUE(accepted(Criterion::flashinfer, compared(Dtype::fp16, 0.00199)));
  EXPECT_FALSE(accepted(Criterion::flashinfer, compared(Dtype::fp16, 0.00201)));
  EXPECT_TRUE(accepted(Criterion::flashinfer, compared(Dtype::bf16, 0.0199)));
  EXPECT_FALSE(accepted(Criterion::flashinfer, compared(Dtype::bf16, 0.0201)));
  EXPECT_EQ(accepts(Criterion::flashinfer, one("dq", Dtype::fp16, 1, 1, 1)), std::nullopt);
}

// Eager's error of the second element, 0.01 of 0.1, makes 10% acceptable for all elements.
TEST(Criteria, PyTorchTakesTheLargestRelativeErrorOfEagerForAllElements) {
  ComparedTensor compared{"o", Dtype::fp16, {2.0f, 0.1f}, {2, 0.1}, {2.0f, 0.11f}};
  compared.found[0] = 2.0f + 0.2099f;
  EXPECT_TRUE(accepted(Criterion::pytorch, compared));
  compared.found[0] = 2.0f + 0.2101f;
  EXPECT_FALSE(accepted(Criterion::pytorch, compared));

  compared.eager = {2.0f, 0.1f};  // exact: only the minimum tolerances remain
  compared.found[0] = 2.0f + 0.0029f;
  EXPECT_TRUE(accepted(Criterion::pytorch, compared));
  compared.found[0] = 2.0f + 0.0031f;
  EXPECT_FALSE(accepted(Criterion::pytorch, compared));

  compared.exact[1] = 0;  // eager's relative error is infinite, and not used
  compared.eager[1] = compared.found[1] = 1e-4f;
  EXPECT_FALSE(accepted(Criterion::pytorch, compared));
}

TEST(Criteria, NoneAcceptsANaN) {
  for (const Criterion criterion : kCriteria) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_FALSE(accepted(criterion, one("o", Dtype::fp16, 1, nan, 1))) << name(criterion);
  }
}

// Two keys with scores 0 and x, so that everything follows from P = (1 - w, w).
TEST(Eager, RoundsEveryStep) {
  const std::unique_ptr<Device> device = make_host_device(1);
  Problem p;
  p.pass = Pass::backward;
  p.dtype = Dtype::bf16;
  p.kv_len = 2;
  p.head_dim = 8;
  p.scale = 0.3;
  AttentionCase attention(p, {}, *device);
  const Inputs in = attention.inputs();
  const auto at = [&](const ConstTensorView& tensor, int64_t row, int64_t column) {
    return load_element(tensor.data, tensor.dtype, tensor.offset(0, 0, row) + column);
  };
  const auto round = [](float value) { return round_to(Dtype::bf16, value); };
  float score[2], d_p[2] = {}, k[2][8];
  for (int64_t key = 0; key < 2; ++key) {
    float dot = 0;
    for (int64_t c = 0; c < 8; ++c) {
      k[key][c] = round(at(in.k, key, c) * 0.3f);
      dot += at(in.q, 0, c) * k[key][c];
      d_p[key] += at(in.d_o, 0, c) * at(in.v, key, c);
    }
    score[key] = round(dot);
    d_p[key] = round(d_p[key]);
  }
  const float weight[2] = {round(1 / (1 + std::exp(score[1] - score[0]))),
                           round(1 / (1 + std::exp(score[0] - score[1])))};
  const float d = weight[0] * d_p[0] + weight[1] * d_p[1];
  const float d_s[2] = {round(weight[0] * (d_p[0] - d)), round(weight[1] * (d_p[1] - d))};

  const Eager eager = eager_attention(p, in, attention.pool);
  for (int64_t c = 0; c < 8; ++c) {
    const auto i = static_cast<size_t>(c);
    EXPECT_EQ(eager.o[i], round(weight[0] * at(in.v, 0, c) + weight[1] * at(in.v, 1, c)));
    EXPECT_EQ(eager.dq[i], round(d_s[0] * k[0][c] + d_s[1] * k[1][c]));
    for (int64_t key = 0; key < 2; ++key) {
      EXPECT_EQ(eager.dk[i + static_cast<size_t>(8 * key)],
                round(round(d_s[key] * at(in.q, 0, c)) * 0.3f));
      EXPECT_EQ(eager.dv[i + static_cast<size_t>(8 * key)], round(weight[key] * at(in.d_o, 0, c)));
    }
  }
}

}  // namespace
}  // namespace flashbench::verify
