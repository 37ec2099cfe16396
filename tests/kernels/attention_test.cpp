// All our own CPU kernels, on every SIMD target of this machine, against the reference.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/kernels/attention_check.h"
#include "tests/kernels/run_kernel.h"

namespace flashbench::kernels {
namespace {

class EveryProblem : public testing::TestWithParam<std::tuple<Pass, Mask, int64_t>> {};

void expect_all_correct(const std::vector<Problem>& problems) {
  ThreadPool pool(2);
  int checked = 0;
  for (const Problem& p : problems) {
    const RandomInputs inputs(p);
    const RandomInputs before = inputs;
    const Expectation expected(inputs);
    for_every_target([&](const std::string& target) {
      for (const AttentionKernel* kernel : cpu_kernels(p.pass)) {
        SCOPED_TRACE(p.id() + " left " + std::to_string(p.window_left.value_or(-1)) + " right " +
                     std::to_string(p.window_right.value_or(-1)) + " " + std::string(kernel->name) +
                     " " + target);
        CheckedOutputs outputs(p);
        run_kernel(*kernel, inputs, outputs, pool);
        expect_correct(p, expected, outputs.view());
        EXPECT_TRUE(inputs == before) << "inputs were changed";
        ++checked;
      }
    });
  }
  EXPECT_GT(checked, 0);
}

TEST_P(EveryProblem, MatchesTheReference) {
  const auto [pass, mask, head_dim] = GetParam();
  expect_all_correct(varied_problems(pass, mask, head_dim));
}

// What a query sees has nothing to do with the head_dim, so a few stand for all.
class ProblemsOfSomeHeadDims : public EveryProblem {};

TEST_P(ProblemsOfSomeHeadDims, MatchTheReferenceInAWindow) {
  const auto [pass, mask, head_dim] = GetParam();
  expect_all_correct(windowed_problems(pass, mask, head_dim));
}

TEST_P(ProblemsOfSomeHeadDims, MatchTheReferenceInEachRequest) {
  const auto [pass, mask, head_dim] = GetParam();
  ThreadPool pool(2);
  for (const Problem& p : problems_of_lengths(pass, mask, head_dim)) {
    const RandomInputs inputs(p);
    const RandomInputs before = inputs;
    for (const AttentionKernel* kernel : cpu_kernels(p.pass)) {
      SCOPED_TRACE(p.id() + " " + p.lengths->id() + " " + std::string(kernel->name));
      CheckedOutputs outputs(p);
      run_kernel(*kernel, inputs, outputs, pool);
      expect_requests_correct(inputs, outputs);
      EXPECT_TRUE(inputs == before) << "inputs were changed";
    }
  }
}

std::string problem_name(const testing::TestParamInfo<std::tuple<Pass, Mask, int64_t>>& test_info) {
  const auto [pass, mask, head_dim] = test_info.param;
  return std::string(name(pass)) + "_" + std::string(name(mask)) + "_d" + std::to_string(head_dim);
}

INSTANTIATE_TEST_SUITE_P(, EveryProblem,
                         testing::Combine(testing::ValuesIn(kPasses), testing::ValuesIn(kMasks),
                                          testing::Values<int64_t>(8, 24, 64, 96, 128, 256)),
                         problem_name);
INSTANTIATE_TEST_SUITE_P(, ProblemsOfSomeHeadDims,
                         testing::Combine(testing::ValuesIn(kPasses), testing::ValuesIn(kMasks),
                                          testing::Values<int64_t>(8, 40, 128)),
                         problem_name);

class EveryForwardProblem : public testing::TestWithParam<std::tuple<Mask, int64_t>> {};

// Where the keys are changes no bit, whatever the size and order of the pages and the size of the
// pool.
TEST_P(EveryForwardProblem, GetsTheSameBitsFromPages) {
  const auto [mask, head_dim] = GetParam();
  ThreadPool pool(2);
  std::vector<Problem> problems = problems_of_lengths(Pass::forward, mask, head_dim);
  for (const Problem& p : varied_problems(Pass::forward, mask, head_dim)) problems.push_back(p);
  uint64_t turn = 0;
  for (const Problem& p : problems) {
    const RandomInputs contiguous(p);
    constexpr std::array<int64_t, 6> kPageSizes{1, 8, 16, 48, 64, 256};
    const int64_t page_size = kPageSizes[turn % kPageSizes.size()];
    const auto unused = static_cast<int64_t>(turn % 5);
    const PagedInputs paged(contiguous, page_size, kKvLayouts[turn % 4 / 2],
                            random_table(p, page_size, unused, turn));
    ++turn;
    for (const AttentionKernel* kernel : cpu_kernels(Pass::forward)) {
      SCOPED_TRACE(p.id() + " page_size " + std::to_string(page_size) + " " +
                   std::string(kernel->name));
      ASSERT_TRUE(kernel->knows_pages);
      CheckedOutputs expected(p), found(paged.problem());
      run_kernel(*kernel, contiguous, expected, pool);
      run_kernel(*kernel, paged, found, pool);
      EXPECT_TRUE(found.same_bits(expected));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryForwardProblem,
                         testing::Combine(testing::ValuesIn(kMasks),
                                          testing::Values<int64_t>(8, 24, 64, 96, 128, 256)),
                         [](const auto& test_info) {
                           return std::string(name(std::get<0>(test_info.param))) + "_d" +
                                  std::to_string(std::get<1>(test_info.param));
                         });

// Both above and below, in each of the kernels' tables of tiles and where a panel is not full.
TEST(AttentionKernels, TakeAHeadDimOfVsOwn) {
  for (const Pass pass : kPasses) {
    for (const Mask mask : kMasks) {
      for (const auto& [head_dim, head_dim_v] :
           {std::pair<int64_t, int64_t>{192, 128}, {24, 40}, {8, 104}}) {
        SCOPED_TRACE(head_dim_v);
        expect_all_correct(varied_problems(pass, mask, head_dim, head_dim_v));
      }
    }
  }
}

// Few queries, and about as many keys as a chunk or two of them have: as in decoding, speculative
// decoding, and the end of a prompt.
TEST(AttentionKernels, MatchTheReferenceOverChunksOfKeys) {
  std::vector<Problem> problems;
  for (const int64_t q_len : {1, 2, 7, 16}) {
    for (const int64_t kv_len : {511, 513, 1050}) {
      for (const auto& [head_dim, head_dim_v] :
           {std::pair<int64_t, int64_t>{128, 128}, {40, 40}, {64, 24}}) {
        const size_t turn = problems.size();
        Problem p;
        p.dtype = kUnscaledDtypes[(turn + turn / 3) % kUnscaledDtypes.size()];
        p.mask = kMasks[turn / 3 % kMasks.size()];
        p.layout = kDenseLayouts[turn / 9 % kDenseLayouts.size()];
        p.kv_heads = 2;
        p.q_heads = p.kv_heads * (1 + static_cast<int64_t>(turn % 5));  // groups of 1 to 5
        p.q_len = q_len;
        p.kv_len = kv_len;
        p.head_dim = head_dim;
        if (head_dim_v != head_dim) p.head_dim_v = head_dim_v;
        if (turn % 4 == 3) p.window_left = 520;
        problems.push_back(p);
      }
    }
  }
  expect_all_correct(problems);
}

// The same in bf16, whose pairs have kernels of their own, with blocks of keys and of queries that
// are not full.
TEST(AttentionKernels, MatchTheReferenceOverChunksOfPairs) {
  std::vector<Problem> problems;
  for (const Mask mask : kMasks) {
    for (const int64_t kv_len : {6, 511, 513}) {
      for (const auto& [q_len, group] : {std::pair<int64_t, int64_t>{1, 8}, {1, 3}, {5, 1}}) {
        for (const auto& [head_dim, head_dim_v] :
             {std::pair<int64_t, int64_t>{128, 128}, {32, 64}, {96, 96}}) {
          Problem p;
          p.dtype = Dtype::bf16;
          p.mask = mask;
          p.layout = kDenseLayouts[problems.size() % kDenseLayouts.size()];
          p.kv_heads = 2;
          p.q_heads = p.kv_heads * group;
          p.q_len = q_len;
          p.kv_len = kv_len;
          p.head_dim = head_dim;
          if (head_dim_v != head_dim) p.head_dim_v = head_dim_v;
          if (problems.size() % 4 == 3) p.window_left = 300;
          problems.push_back(p);
        }
      }
    }
  }
  expect_all_correct(problems);
}

// Several of the largest tiles in each direction, and several chunks of keys.
TEST(AttentionKernels, MatchTheReferenceOverManyTiles) {
  ThreadPool pool(3);
  for (const Pass pass : kPasses) {
    for (const Mask mask : kMasks) {
      for (const bool window : {false, true}) {
        Problem p;
        p.pass = pass;
        p.mask = mask;
        p.q_heads = p.kv_heads = 1;
        p.q_len = 1100;
        p.kv_len = 777;
        p.head_dim = 40;
        if (window) {
          p.window_left = 300;
          p.window_right = 150;
        }
        const RandomInputs inputs(p);
        const Expectation expected(inputs);
        for (const AttentionKernel* kernel : cpu_kernels(pass)) {
          SCOPED_TRACE(p.id() + " " + std::string(kernel->name) + (window ? " window" : ""));
          CheckedOutputs outputs(p);
          run_kernel(*kernel, inputs, outputs, pool);
          expect_correct(p, expected, outputs.view());
        }
      }
    }
  }
}

// What no query of a tile sees is not read.
TEST(AttentionKernels, RequestOnlyWhatTheWindowLeaves) {
  Problem p;
  p.q_len = p.kv_len = 4096;
  const DeviceInfo host = host_with_threads(1);
  for (const Pass pass : kPasses) {
    p.pass = pass;
    Problem windowed = p;
    windowed.window_left = 200;
    windowed.window_right = 0;
    for (const AttentionKernel* kernel : cpu_kernels(pass)) {
      EXPECT_LT(kernel->requested_bytes({windowed, host}), kernel->requested_bytes({p, host}) / 2);
      EXPECT_GE(kernel->requested_bytes({windowed, host}), windowed.compulsory_bytes());
    }
  }
}

TEST(AttentionKernels, NameTheTargetThatRuns) {
  const DeviceInfo host = host_with_threads(1);
  for_every_target([&](const std::string& target) {
    for (const Pass pass : kPasses) {
      Problem problem;
      problem.pass = pass;
      for (const AttentionKernel* kernel : cpu_kernels(pass)) {
        const std::string variant = kernel->variant({problem, host});
        EXPECT_TRUE(variant.starts_with(kernel->name)) << variant;
        EXPECT_TRUE(variant.ends_with(" " + target)) << variant;
      }
    }
  });
}

}  // namespace
}  // namespace flashbench::kernels
