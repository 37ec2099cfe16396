// Runs kernels with planted defects through the tool's own path: each ends as "failed" by the
// default criterion, and the same kernel without the defect as "ok".
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "case/case_run.h"
#include "mutants/mutant_provider.h"

namespace flashbench {
namespace {

using verify::Defect;
using verify::Simulation;

constexpr int64_t kTile = 64;

class Mutants : public testing::TestWithParam<std::tuple<Pass, Dtype>> {
 protected:
  Mutants() {
    item_.problem.pass = std::get<0>(GetParam());
    item_.problem.dtype = std::get<1>(GetParam());
    item_.problem.mask = Mask::causal_bottom_right;
    options_.time = false;
  }

  void set_shape(int64_t q_heads, int64_t kv_heads, int64_t q_len, int64_t kv_len) {
    item_.problem.q_heads = q_heads;
    item_.problem.kv_heads = kv_heads;
    item_.problem.q_len = q_len;
    item_.problem.kv_len = kv_len;
    item_.problem.head_dim = 32;
  }

  Record run(Defect defect) {
    // P keeps the precision of the dtype, so that p_in_bf16 is the only loss.
    const MutantProvider mutant({kTile, true, false, false, defect});
    return run_case(item_, {&mutant}, *device_, nullptr, options_).at(0);
  }

  std::unique_ptr<Device> device_ = make_host_device(2);
  CaseRunOptions options_;
  Case item_;
};

INSTANTIATE_TEST_SUITE_P(All, Mutants,
                         testing::Combine(testing::ValuesIn(kPasses),
                                          testing::ValuesIn(kUnscaledDtypes)),
                         [](const auto& instance) {
                           return std::string(name(std::get<0>(instance.param))) + "_" +
                                  std::string(name(std::get<1>(instance.param)));
                         });

TEST_P(Mutants, AreCaught) {
  for (const auto& [q_len, kv_len] : {std::pair<int64_t, int64_t>{90, 200}, {300, 270}}) {
    set_shape(4, 2, q_len, kv_len);
    EXPECT_EQ(name(run(Defect::none).status), "ok");
    for (const Defect defect : verify::kDefects) {
      if (!shows(defect, item_.problem, kTile)) continue;
      const Record record = run(defect);
      EXPECT_EQ(name(record.status), "failed") << name(defect) << " " << item_.problem.id();
      EXPECT_NE(record.reason, "") << name(defect);
      EXPECT_FALSE(record.verdict.passed()) << name(defect);
    }
  }
}

TEST_P(Mutants, OfWindowsAreCaught) {
  for (const Mask mask : kMasks) {
    item_.problem.mask = mask;
    for (const auto& [q_len, kv_len] : {std::pair<int64_t, int64_t>{90, 200}, {300, 270}}) {
      set_shape(4, 2, q_len, kv_len);
      item_.problem.window_left = 70;
      item_.problem.window_right = 20;
      EXPECT_EQ(name(run(Defect::none).status), "ok");
      int shown = 0;
      for (const Defect defect : verify::kWindowDefects) {
        if (!shows(defect, item_.problem, kTile)) continue;
        ++shown;
        EXPECT_EQ(name(run(defect).status), "failed") << name(defect) << " " << item_.key();
      }
      EXPECT_GE(shown, mask == Mask::causal_top_left ? 2 : mask == Mask::none ? 4 : 3);
    }
  }
}

// 192 and 128, as in DeepSeek's prefill, and the other way round, where D has the longer sum.
TEST_P(Mutants, OfAHeadDimOfVsOwnAreCaught) {
  const bool backward = item_.problem.pass == Pass::backward;
  for (const auto& [head_dim, head_dim_v] : {std::pair<int64_t, int64_t>{192, 128}, {24, 40}}) {
    set_shape(4, 2, 90, 130);
    item_.problem.head_dim = head_dim;
    item_.problem.head_dim_v = head_dim_v;
    EXPECT_EQ(name(run(Defect::none).status), "ok");
    int shown = 0;
    for (const Defect defect : verify::kHeadDimVDefects) {
      if (!shows(defect, item_.problem, kTile)) continue;
      ++shown;
      EXPECT_EQ(name(run(defect).status), "failed") << name(defect) << " " << head_dim;
    }
    EXPECT_EQ(shown, backward && head_dim_v > head_dim ? 3 : 2);
  }
}

// Ragged and padded: request b has its own keys, not those behind them, and its own diagonal.
TEST_P(Mutants, OfLengthsAreCaught) {
  for (const Layout layout : kLayouts) {
    for (const Mask mask : kMasks) {
      set_shape(4, 2, 1, 1);
      item_.problem.layout = layout;
      item_.problem.mask = mask;
      item_.problem.set_lengths(std::make_shared<const Lengths>(
          std::vector<RequestLengths>{{20, 90}, {0, 5}, {40, 40}, {7, 130}, {9, 0}}));
      EXPECT_EQ(name(run(Defect::none).status), "ok");
      int shown = 0;
      for (const Defect defect : verify::kLengthsDefects) {
        if (!shows(defect, item_.problem, kTile)) continue;
        ++shown;
        const Record record = run(defect);
        EXPECT_EQ(name(record.status), "failed") << name(defect) << " " << item_.key();
        EXPECT_NE(record.reason, "") << name(defect);
      }
      EXPECT_EQ(shown, mask == Mask::causal_bottom_right ? 3 : 2);
    }
  }
}

class ForwardMutants : public Mutants {};

INSTANTIATE_TEST_SUITE_P(All, ForwardMutants,
                         testing::Combine(testing::Values(Pass::forward),
                                          testing::ValuesIn(kUnscaledDtypes)),
                         [](const auto& instance) {
                           return std::string(name(std::get<1>(instance.param)));
                         });

// Of equal lengths and others: request b has its own pages, each with K and V, and nothing behind
// its last key.
TEST_P(ForwardMutants, OfPagesAreCaught) {
  const auto lengths = std::make_shared<const Lengths>(
      std::vector<RequestLengths>{{20, 90}, {0, 5}, {40, 40}, {7, 130}, {9, 0}, {3, 129}});
  for (const auto& given : {std::shared_ptr<const Lengths>(), lengths}) {
    for (const int64_t page_size : {1, 8, 16, 48, 64, 128}) {
      for (const Mask mask : kMasks) {
        set_shape(4, 2, 70, 130);
        item_.problem.batch = 3;
        item_.problem.mask = mask;
        item_.problem.page_size = page_size;
        item_.problem.kv_layout = kKvLayouts[page_size % 3 % 2];
        item_.problem.set_lengths(given);
        EXPECT_EQ(name(run(Defect::none).status), "ok");
        int shown = 0;
        for (const Defect defect : verify::kPagesDefects) {
          if (!shows(defect, item_.problem, kTile)) continue;
          ++shown;
          const Record record = run(defect);
          EXPECT_EQ(name(record.status), "failed") << name(defect) << " " << item_.key();
          EXPECT_NE(record.reason, "") << name(defect);
        }
        EXPECT_GE(shown, page_size == 1 || mask == Mask::causal_top_left ? 4 : 5);
      }
    }
  }
}

// Partial results in bf16 are what a provider says of itself; equal scores of such a kernel have no
// exact mean.
TEST_P(ForwardMutants, UndeclaredPartialResultsAreCaught) {
  if (item_.problem.dtype == Dtype::bf16) return;  // no more error than P in bf16 has
  set_shape(4, 2, 9, 1000);
  const Simulation split{.splits = 7, .partials = Dtype::bf16};
  const MutantProvider silent(split), honest(split, Dtype::bf16);
  EXPECT_EQ(name(run_case(item_, {&silent}, *device_, nullptr, options_).at(0).status), "failed");
  for (const Distribution distribution : {Distribution::normal, Distribution::equal_scores}) {
    item_.inputs.distribution = distribution;
    const Record record = run_case(item_, {&honest}, *device_, nullptr, options_).at(0);
    EXPECT_EQ(name(record.status), "ok") << record.reason;
  }
}

// The longer the rows, the less one tile of keys weighs.
TEST_P(Mutants, ADroppedTileIsCaughtAmongManyKeys) {
  for (const int64_t kv_len : {8192, 32768}) {
    set_shape(2, 1, 16, kv_len);
    EXPECT_EQ(name(run(Defect::none).status), "ok");
    EXPECT_EQ(name(run(Defect::dropped_key_tile).status), "failed") << item_.problem.id();
  }
}

// Stale outputs are right for the inputs of the verification, and for no others.
TEST_P(Mutants, StaleOutputsAreCaught) {
  set_shape(2, 1, 40, 50);
  EXPECT_EQ(name(run(Defect::none).status), "ok");
  const Record record = run(Defect::stale_output);
  for (const TensorError& error : record.verdict.tensors) EXPECT_TRUE(error.passed);
  EXPECT_FALSE(record.verdict.tensors.empty());
  EXPECT_EQ(name(record.status), "failed");
  EXPECT_NE(record.reason, "");
}

}  // namespace
}  // namespace flashbench
