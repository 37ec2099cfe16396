// Compares the references of a GPU with the host's: values, bounds, naive errors and verdicts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "attention/half.h"
#include "attention_case.h"
#include "device/cuda.h"
#include "verify/references.h"
#include "verify/verdict.h"

namespace flashbench::verify {

namespace {

// Tolerance of fp64 differences, relative to a tensor's largest value, for scores of size 1: those
// of a softmax grow with the scores. If the exact value is 0, it is relative to the largest bound.
constexpr double kValueTolerance = 1e-12;
constexpr double kValueToleranceOfBound = 1e-6;
constexpr double kBoundTolerance = 1e-4;

// The largest ratio of the two naive errors. In 16-bit dtypes rounding to the dtype dominates; in
// fp32 the order of sums does, because the host adds thousands of terms one after the other.
double naive_tolerance(Dtype dtype) {
  return dtype == Dtype::fp32 ? 16 : 2;
}

struct Shape {
  int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim;
  Layout layout = Layout::bshd;
  std::optional<int64_t> head_dim_v = std::nullopt;
};

Problem problem_of(Pass pass, Dtype dtype, Mask mask, const Shape& shape) {
  Problem p;
  p.pass = pass;
  p.dtype = dtype;
  p.mask = mask;
  p.layout = shape.layout;
  p.batch = shape.batch;
  p.q_heads = shape.q_heads;
  p.kv_heads = shape.kv_heads;
  p.q_len = shape.q_len;
  p.kv_len = shape.kv_len;
  p.head_dim = shape.head_dim;
  p.head_dim_v = shape.head_dim_v;
  return p;
}

// Scores are exponents: an absolute error of a score is a relative error of P.
double largest_exponent(const Problem& p, const References& references) {
  double largest = 1;
  const auto take = [&](double logsumexp) {
    if (std::isfinite(logsumexp)) largest = std::max(largest, std::abs(logsumexp));
  };
  if (p.pass == Pass::backward) {
    for (const float logsumexp : references.forward.logsumexp) take(logsumexp);
    return largest;
  }
  const Matrix<double>& logsumexps = references.tensors[1].value;
  for (int64_t row = 0; row < logsumexps.rows(); ++row) take(*logsumexps.row(row));
  return largest;
}

template <typename T>
double largest_finite(const Matrix<T>& matrix) {
  double largest = 0;
  for (int64_t i = 0; i < matrix.rows() * matrix.cols(); ++i) {
    const double value = std::abs(matrix.row(0)[i]);
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  return largest;
}

class CudaOracle : public testing::TestWithParam<std::tuple<Pass, Dtype>> {
 protected:
  static void SetUpTestSuite() {
    if (!why_no_cuda()) device_ = make_cuda_device(0);
  }
  static void TearDownTestSuite() { device_.reset(); }
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  }

  Pass pass() const { return std::get<0>(GetParam()); }
  Dtype dtype() const { return std::get<1>(GetParam()); }
  ThreadPool& pool() { return *device_->stream().threads; }

  struct Both {
    Selection selection;
    References host, gpu;
  };
  std::unique_ptr<Both> both(const AttentionCase& attention, const Storage& storage,
                             const OracleBudget& budget = {}) {
    auto result = std::make_unique<Both>();
    const Problem& p = attention.problem;
    result->selection = select_rows(p, budget);
    result->host = references_on_host(p, attention.inputs(), storage, result->selection, pool());
    result->gpu = references_on_gpu(p, attention.inputs(), storage, result->selection, *device_);
    return result;
  }

  void expect_same(const std::string& label, const Problem& p, const Both& both,
                   bool compare_naive = true) {
    const double exponent = largest_exponent(p, both.host);
    ASSERT_EQ(both.host.tensors.size(), both.gpu.tensors.size());
    for (size_t i = 0; i < both.host.tensors.size(); ++i) {
      expect_same_tensor(label, both.host.tensors[i], both.gpu.tensors[i], exponent);
      if (!compare_naive) continue;
      const double host = both.host.tensors[i].naive_max_abs;
      const double gpu = both.gpu.tensors[i].naive_max_abs;
      // Tiny naive errors are treated as in the verdict.
      const double least = std::max(largest_finite(both.host.tensors[i].value) * 0x1p-25,
                                    largest_finite(both.host.tensors[i].bound) / 64);
      const double most = naive_tolerance(both.host.tensors[i].dtype);
      EXPECT_LE(host, most * std::max(gpu, least)) << label << both.host.tensors[i].tensor;
      EXPECT_LE(gpu, most * std::max(host, least)) << label << both.host.tensors[i].tensor;
    }
    const ExactForward &host = both.host.forward, &gpu = both.gpu.forward;
    ASSERT_EQ(host.logsumexp.size(), gpu.logsumexp.size());
    for (size_t i = 0; i < host.logsumexp.size(); ++i) {
      if (std::isnan(host.logsumexp[i]) && std::isnan(gpu.logsumexp[i])) continue;
      ASSERT_FLOAT_EQ(host.logsumexp[i], gpu.logsumexp[i]) << label << "row " << i;
    }
    ASSERT_EQ(host.o.size(), gpu.o.size());
    if (p.pass == Pass::backward) expect_same_o(label, p, host, gpu);
  }

  // A tie in fp64 may be rounded either way. Padding is no part of O.
  static void expect_same_o(const std::string& label, const Problem& p, const ExactForward& host,
                            const ExactForward& gpu) {
    const ConstTensorView view = output_view<const void>(host.o.data(), p);
    int64_t different = 0, wrong = 0;
    const auto compare = [&](int64_t i) {
      const float a = load_element(host.o.data(), p.dtype, i);
      const float b = load_element(gpu.o.data(), p.dtype, i);
      if (std::isnan(a) && std::isnan(b)) return;
      if (a == b || std::abs(a - b) <= kValueTolerance) return;
      ++different;
      wrong += !(std::abs(a - b) <= 0x1p-7f * std::abs(a));
    };
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t h = 0; h < p.q_heads; ++h) {
        for (int64_t row = 0; row < p.q_len_of(b); ++row) {
          for (int64_t c = 0; c < p.value_dim(); ++c) compare(view.offset(b, h, row) + c);
        }
      }
    }
    EXPECT_EQ(wrong, 0) << label << "O";
    EXPECT_LE(different, 1 + p.output_elements() / 1000) << label << "O";
  }

  static void expect_same_tensor(const std::string& label, const Reference& host,
                                 const Reference& gpu, double exponent) {
    double worst_value = 0, worst_bound = 0;
    int64_t wrong = 0;
    for (int64_t i = 0; i < host.elements(); ++i) {
      const double expected = host.value.row(0)[i], found = gpu.value.row(0)[i];
      if (!std::isfinite(expected) || !std::isfinite(found)) {
        wrong += std::isnan(expected) ? !std::isnan(found) : expected != found;
        continue;
      }
      worst_value = std::max(worst_value, std::abs(found - expected));
      const float bound = host.bound.row(0)[i], found_bound = gpu.bound.row(0)[i];
      if (!std::isfinite(bound)) {
        wrong += std::isfinite(found_bound);
      } else if (!std::isfinite(found_bound)) {
        ++wrong;
      } else if (bound != found_bound) {
        worst_bound = std::max(worst_bound, std::abs(static_cast<double>(found_bound) - bound) /
                                                static_cast<double>(bound));
      }
    }
    EXPECT_EQ(wrong, 0) << label << host.tensor << ": wrongly finite or not";
    EXPECT_LE(worst_value, kValueTolerance * exponent * largest_finite(host.value) +
                               kValueToleranceOfBound * largest_finite(host.bound))
        << label << host.tensor;
    EXPECT_LE(worst_bound, kBoundTolerance) << label << host.tensor;
  }

  // Compares both verdicts on the outputs of a case.
  static void expect_same_verdicts(const std::string& label, const Both& both,
                                   AttentionCase& attention, bool correct) {
    const Outputs outputs = attention.outputs();
    const Problem& p = attention.problem;
    const std::vector<ConstTensorView> views =
        p.pass == Pass::forward
            ? std::vector<ConstTensorView>{outputs.o,
                                           logsumexp_view<const void>(outputs.logsumexp, p)}
            : std::vector<ConstTensorView>{outputs.dq, outputs.dk, outputs.dv};
    bool passed = true;
    for (size_t i = 0; i < views.size(); ++i) {
      const TensorError host = judge_tensor(both.host.tensors[i], views[i], attention.pool).error;
      const TensorError gpu = judge_tensor(both.gpu.tensors[i], views[i], attention.pool).error;
      EXPECT_EQ(host.passed, gpu.passed) << label << host.tensor;
      EXPECT_EQ(host.nonfinite, gpu.nonfinite) << label << host.tensor;
      if (host.lambda != gpu.lambda) {  // as where both are infinite
        EXPECT_NEAR(host.lambda, gpu.lambda, 1e-3 * host.lambda + 1e-3) << label << host.tensor;
      }
      EXPECT_NEAR(host.max_abs, gpu.max_abs, 1e-6 * host.max_abs + 1e-12) << label << host.tensor;
      passed = passed && gpu.passed;
    }
    EXPECT_EQ(passed, correct) << label;
  }

  // A correct kernel passes, and each of the defects, which has to show in the problem, fails.
  void expect_same_on_defects(const Problem& p, std::span<const Defect> defects) {
    constexpr int64_t kTile = 64;
    AttentionCase attention(p, {}, *device_);
    attention.make_oracle();
    const std::unique_ptr<Both> references = both(attention, Dtype::fp32);
    attention.run({kTile, true, false, false, Defect::none});
    expect_same_verdicts("correct ", *references, attention, true);
    for (const Defect defect : defects) {
      ASSERT_TRUE(shows(defect, p, kTile)) << name(defect);
      attention.run({kTile, true, false, false, defect});
      expect_same_verdicts(std::string(name(defect)) + " ", *references, attention, false);
    }
  }

  static std::unique_ptr<Device> device_;
};

std::unique_ptr<Device> CudaOracle::device_;

INSTANTIATE_TEST_SUITE_P(All, CudaOracle,
                         testing::Combine(testing::ValuesIn(kPasses),
                                          testing::ValuesIn(kUnscaledDtypes)),
                         [](const auto& instance) {
                           return std::string(name(std::get<0>(instance.param))) + "_" +
                                  std::string(name(std::get<1>(instance.param)));
                         });

TEST_P(CudaOracle, AgreesOnShapesAndMasks) {
  for (const Mask mask : kMasks) {
    for (const Shape& shape :
         {Shape{1, 1, 1, 1, 1, 64}, Shape{2, 4, 2, 257, 129, 40},
          Shape{1, 3, 3, 100, 1000, 64, Layout::bhsd}, Shape{1, 4, 1, 1000, 257, 128},
          Shape{1, 2, 2, 513, 511, 256}, Shape{2, 4, 2, 257, 129, 192, Layout::bshd, 128},
          Shape{1, 2, 1, 100, 300, 24, Layout::bhsd, 56}}) {
      const Problem p = problem_of(pass(), dtype(), mask, shape);
      const AttentionCase attention(p, {}, *device_);
      expect_same(p.id() + " ", p, *both(attention, Dtype::fp32));
    }
  }
}

// On either side, with rows that see nothing, and over several blocks and tiles.
TEST_P(CudaOracle, AgreesOnWindows) {
  for (const Mask mask : kMasks) {
    for (const Shape& shape : {Shape{2, 4, 2, 120, 300, 64}, Shape{1, 4, 2, 300, 120, 40},
                               Shape{1, 2, 1, 20001, 2500, 8}, Shape{1, 2, 1, 2500, 20001, 8}}) {
      for (const auto& [left, right] :
           {std::pair<std::optional<int64_t>, std::optional<int64_t>>{37, 5}, {0, {}}, {{}, 64}}) {
        Problem p = problem_of(pass(), dtype(), mask, shape);
        p.window_left = left;
        p.window_right = right;
        const AttentionCase attention(p, {}, *device_);
        expect_same(p.id() + " window ", p, *both(attention, Dtype::fp32, {1e13, 1}));
        expect_same(p.id() + " window, sampled ", p, *both(attention, Dtype::fp32, {2e6, 3}),
                    false);
      }
    }
  }
}

// Of no queries, of no keys, of one of each, and over several tiles; padding is NaN.
std::shared_ptr<const Lengths> unequal_lengths() {
  return std::make_shared<const Lengths>(std::vector<RequestLengths>{
      {0, 50}, {300, 420}, {40, 0}, {1, 1}, {257, 129}, {1, 600}, {0, 0}});
}

TEST_P(CudaOracle, AgreesOnRequestsOfDifferentLengths) {
  for (const Mask mask : kMasks) {
    for (const Layout layout : kLayouts) {
      Problem p = problem_of(pass(), dtype(), mask, {1, 4, 2, 1, 1, 40, layout});
      p.set_lengths(unequal_lengths());
      const AttentionCase attention(p, {}, *device_);
      expect_same(p.id() + " ", p, *both(attention, Dtype::fp32));
    }
  }
}

TEST_P(CudaOracle, AgreesOnWindowsWidthsAndSamplesOfRequests) {
  for (const Layout layout : {Layout::bhsd, Layout::ragged}) {
    Problem p = problem_of(pass(), dtype(), Mask::none, {1, 4, 2, 1, 1, 40, layout, 24});
    p.window_left = p.window_right = 37;
    p.set_lengths(unequal_lengths());
    const AttentionCase attention(p, {}, *device_);
    expect_same(p.id() + " window ", p, *both(attention, Dtype::fp32));
    expect_same(p.id() + " sampled ", p, *both(attention, Dtype::fp32, {2e6, 3}), false);
  }
}

TEST_P(CudaOracle, AgreesWhereAKeyOfARequestIsNotFinite) {
  for (const Layout layout : kLayouts) {
    for (const Distribution distribution : {Distribution::nan_key, Distribution::nan_unseen}) {
      Problem p =
          problem_of(pass(), dtype(), Mask::causal_bottom_right, {1, 4, 2, 1, 1, 40, layout});
      p.set_lengths(unequal_lengths());
      const AttentionCase attention(p, {.distribution = distribution}, *device_);
      expect_same(p.id() + " " + std::string(name(distribution)) + " ", p,
                  *both(attention, Dtype::fp32), false);
    }
  }
}

TEST_P(CudaOracle, AgreesOnPlantedErrorsInRequests) {
  for (const Layout layout : kLayouts) {
    Problem p = problem_of(pass(), dtype(), Mask::causal_bottom_right, {1, 4, 2, 1, 1, 64, layout});
    p.set_lengths(std::make_shared<const Lengths>(
        std::vector<RequestLengths>{{200, 700}, {100, 90}, {0, 10}, {150, 150}}));
    expect_same_on_defects(p, kLengthsDefects);
  }
}

// Forward problems of equal lengths and of different ones, in pages. The ends of last pages and the
// unused pages are NaN.
std::vector<Problem> paged_problems(Dtype dtype, Mask mask) {
  std::vector<Problem> problems;
  for (const KvLayout kv_layout : kKvLayouts) {
    for (const int64_t page_size : {1, 48}) {
      Problem p = problem_of(Pass::forward, dtype, mask, {3, 4, 2, 33, 257, 40, Layout::bhsd, 24});
      p.page_size = page_size;
      p.kv_layout = kv_layout;
      problems.push_back(p);
      p.set_lengths(unequal_lengths());
      p.layout = page_size == 1 ? Layout::ragged : Layout::bshd;
      problems.push_back(p);
    }
  }
  return problems;
}

TEST_P(CudaOracle, AgreesOnPagedCaches) {
  if (pass() == Pass::backward) GTEST_SKIP() << "caches are for the forward pass";
  for (const Mask mask : kMasks) {
    for (const Problem& p : paged_problems(dtype(), mask)) {
      const AttentionCase attention(p, {}, *device_);
      expect_same(p.id() + " pages ", p, *both(attention, Dtype::fp32));
    }
  }
}

TEST_P(CudaOracle, AgreesOnSharedPagesAndSamples) {
  if (pass() == Pass::backward) GTEST_SKIP() << "caches are for the forward pass";
  for (Problem p : paged_problems(dtype(), Mask::causal_bottom_right)) {
    p.shared_prefix = 100;
    const AttentionCase attention(p, {}, *device_);
    expect_same(p.id() + " shared ", p, *both(attention, Dtype::fp32));
    expect_same(p.id() + " sampled ", p, *both(attention, Dtype::fp32, {1e6, 3}), false);
  }
}

TEST_P(CudaOracle, AgreesWhereAKeyInAPageIsNotFinite) {
  if (pass() == Pass::backward) GTEST_SKIP() << "caches are for the forward pass";
  for (const Distribution distribution : {Distribution::nan_key, Distribution::nan_unseen}) {
    for (const Problem& p : paged_problems(dtype(), Mask::causal_bottom_right)) {
      const AttentionCase attention(p, {.distribution = distribution}, *device_);
      expect_same(p.id() + " pages ", p, *both(attention, Dtype::fp32), false);
    }
  }
}

TEST_P(CudaOracle, AgreesOnPlantedErrorsInPages) {
  if (pass() == Pass::backward) GTEST_SKIP() << "caches are for the forward pass";
  for (const KvLayout kv_layout : kKvLayouts) {
    Problem p = problem_of(pass(), dtype(), Mask::causal_bottom_right, {1, 4, 2, 1, 1, 64});
    p.set_lengths(std::make_shared<const Lengths>(
        std::vector<RequestLengths>{{200, 700}, {100, 90}, {0, 10}, {150, 150}}));
    p.page_size = 16;
    p.kv_layout = kv_layout;
    expect_same_on_defects(p, kPagesDefects);
  }
}

// Several blocks of rows, and several tiles for each.
TEST_P(CudaOracle, AgreesOnLongSequences) {
  for (const Shape& shape : {Shape{1, 2, 1, 20001, 2500, 8}, Shape{1, 2, 1, 2500, 20001, 8}}) {
    const Problem p = problem_of(pass(), dtype(), Mask::causal_bottom_right, shape);
    const AttentionCase attention(p, {}, *device_);
    expect_same(p.id() + " ", p, *both(attention, Dtype::fp32, {1e13, 1}));
  }
}

TEST_P(CudaOracle, AgreesOnSamples) {
  for (const double budget : {2e6, 5e7}) {
    const Problem p = problem_of(pass(), dtype(), Mask::causal_top_left, {2, 4, 2, 700, 650, 32});
    const AttentionCase attention(p, {}, *device_);
    const std::unique_ptr<Both> references = both(attention, Dtype::fp32, {budget, 3});
    EXPECT_TRUE(references->selection.sampled);
    expect_same(p.id() + " ", p, *references, pass() == Pass::forward);
  }
}

// Few rows are left to the host; but a backward pass begins with the forward pass of all rows.
TEST_P(CudaOracle, IsChosenForAllThatThereIsToCompute) {
  const Problem p = problem_of(pass(), dtype(), Mask::none, {1, 32, 32, 16384, 16384, 64});
  const Selection few = select_rows(p, {1, 1});
  EXPECT_EQ(better_on_gpu(p, few, *device_), pass() == Pass::backward);
}

TEST_P(CudaOracle, AgreesOnScoresIn16Bits) {
  for (const Dtype scores : {Dtype::fp16, Dtype::bf16}) {
    for (const Distribution distribution : {Distribution::normal, Distribution::late_maximum}) {
      const Problem p =
          problem_of(pass(), dtype(), Mask::causal_bottom_right, {1, 4, 2, 300, 500, 64});
      const AttentionCase attention(p, {.distribution = distribution}, *device_);
      expect_same(p.id() + " ", p, *both(attention, scores));
      expect_same(p.id() + " partials ", p, *both(attention, {Dtype::fp32, scores}));
    }
  }
}

TEST_P(CudaOracle, AgreesOnEveryDistribution) {
  for (const Distribution distribution : kDistributions) {
    if (distribution == Distribution::files) continue;
    for (const Mask mask : kMasks) {
      const Problem p = problem_of(pass(), dtype(), mask, {2, 4, 2, 120, 300, 64});
      const AttentionCase attention(p, {.distribution = distribution}, *device_);
      // The rows that a NaN spoils in the naive computation depend on its tiles.
      const bool finite = distribution < Distribution::nan_key;
      expect_same(p.id() + " " + std::string(name(distribution)) + " ", p,
                  *both(attention, Dtype::fp32), finite);
    }
  }
}

// A NaN and an Inf in one row of each tensor.
TEST_P(CudaOracle, AgreesWhereInputsAreNotFinite) {
  for (int tensor = 0; tensor < (pass() == Pass::forward ? 3 : 4); ++tensor) {
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const Problem p =
          problem_of(pass(), dtype(), Mask::causal_bottom_right, {1, 4, 2, 300, 310, 40});
      const AttentionCase attention(p, {}, *device_);
      const Inputs inputs = attention.inputs();
      const ConstTensorView view = std::vector<ConstTensorView>{
          inputs.q, inputs.k, inputs.v, inputs.d_o}[static_cast<size_t>(tensor)];
      store_element(const_cast<void*>(view.data), view.dtype, view.offset(0, 1, 140) + 3, value);
      const std::string label = fmt::format("{} tensor {} {} ", p.id(), tensor, value);
      expect_same(label, p, *both(attention, Dtype::fp32), false);
    }
  }
}

TEST_P(CudaOracle, AgreesOnCorrectKernelsAndPlantedErrors) {
  constexpr int64_t kTile = 64;
  const Problem p = problem_of(pass(), dtype(), Mask::causal_bottom_right, {1, 4, 2, 200, 700, 64});
  AttentionCase attention(p, {}, *device_);
  attention.make_oracle();  // for the O and logsumexp that the gradients start from
  const std::unique_ptr<Both> references = both(attention, Dtype::fp32);
  for (const bool p_in_dtype : {true, false}) {
    attention.run({kTile, p_in_dtype, false, false, Defect::none});
    expect_same_verdicts("correct ", *references, attention, true);
  }
  for (const Defect defect : kDefects) {
    if (!shows(defect, p, kTile) || defect == Defect::stale_output) continue;
    attention.run({kTile, true, false, false, defect});
    expect_same_verdicts(std::string(name(defect)) + " ", *references, attention, false);
  }
}

TEST_P(CudaOracle, JudgesLongRequestsFromTheDevice) {
  for (const Layout layout : {Layout::bshd, Layout::ragged}) {
    Problem p = problem_of(pass(), dtype(), Mask::causal_bottom_right, {1, 8, 4, 1, 1, 64, layout});
    p.set_lengths(std::make_shared<const Lengths>(
        std::vector<RequestLengths>{{2048, 4096}, {5, 3000}, {2000, 2000}}));
    AttentionCase attention(p, {}, *device_);
    EXPECT_TRUE(better_on_gpu(p, select_rows(p, {}), *device_));
    attention.make_oracle({1e9, 1});
    const Verdict verdict = attention.judge({});
    EXPECT_TRUE(verdict.passed()) << verdict.reason;
    EXPECT_FALSE(verdict.sampled);
    EXPECT_FALSE(attention.judge({64, true, false, false, Defect::last_key_ignored}).passed());
  }
}

// The tool's own path: a problem that is large enough for the GPU.
TEST_P(CudaOracle, JudgesFromTheDevice) {
  const Problem p =
      problem_of(pass(), dtype(), Mask::causal_bottom_right, {1, 8, 4, 2048, 4096, 64});
  AttentionCase attention(p, {}, *device_);
  EXPECT_TRUE(better_on_gpu(p, select_rows(p, {}), *device_));
  const MemoryUsage before = device_->used();
  device_->reset_peak();
  attention.make_oracle({1e9, 1});  // the host's budget; the GPU's is enough for all rows
  EXPECT_EQ(device_->peak().total(), before.total());
  const Verdict verdict = attention.judge({});
  EXPECT_TRUE(verdict.passed()) << verdict.reason;
  EXPECT_FALSE(verdict.sampled);
  EXPECT_EQ(verdict.checked_fraction, 1);
  EXPECT_FALSE(attention.judge({64, true, false, false, Defect::last_key_ignored}).passed());
}

TEST_P(CudaOracle, JudgesLongPagedCachesFromTheDevice) {
  if (pass() == Pass::backward) GTEST_SKIP() << "caches are for the forward pass";
  Problem p = problem_of(pass(), dtype(), Mask::causal_bottom_right, {2, 8, 4, 2048, 4096, 64});
  p.page_size = 16;
  AttentionCase attention(p, {}, *device_);
  EXPECT_TRUE(better_on_gpu(p, select_rows(p, {}), *device_));
  attention.make_oracle({1e9, 1});
  const Verdict verdict = attention.judge({});
  EXPECT_TRUE(verdict.passed()) << verdict.reason;
  EXPECT_FALSE(verdict.sampled);
  EXPECT_FALSE(attention.judge({64, true, false, false, Defect::v_from_next_page}).passed());
}

}  // namespace

}  // namespace flashbench::verify
