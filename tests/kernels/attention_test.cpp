// All our own CPU kernels, on every SIMD target of this machine, against the reference.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include "tests/kernels/attention_check.h"
#include "tests/kernels/run_kernel.h"

namespace flashbench::kernels {
namespace {

class EveryProblem : public testing::TestWithParam<std::tuple<Pass, Mask, int64_t>> {};

TEST_P(EveryProblem, MatchesTheReference) {
  const auto [pass, mask, head_dim] = GetParam();
  ThreadPool pool(2);
  int checked = 0;
  for (const Problem& p : varied_problems(pass, mask, head_dim)) {
    const RandomInputs inputs(p);
    const RandomInputs before = inputs;
    const Expectation expected(inputs);
    for_every_target([&](const std::string& target) {
      for (const AttentionKernel* kernel : cpu_kernels(p.pass)) {
        SCOPED_TRACE(p.id() + " " + std::string(kernel->name) + " " + target);
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

INSTANTIATE_TEST_SUITE_P(, EveryProblem,
                         testing::Combine(testing::ValuesIn(kPasses), testing::ValuesIn(kMasks),
                                          testing::Values<int64_t>(8, 24, 64, 96, 128, 256)),
                         [](const auto& test_info) {
                           return std::string(name(std::get<0>(test_info.param))) + "_" +
                                  std::string(name(std::get<1>(test_info.param))) + "_d" +
                                  std::to_string(std::get<2>(test_info.param));
                         });

// Several of the largest tiles in each direction, and several chunks of keys.
TEST(AttentionKernels, MatchTheReferenceOverManyTiles) {
  ThreadPool pool(3);
  for (const Pass pass : kPasses) {
    for (const Mask mask : kMasks) {
      Problem p;
      p.pass = pass;
      p.mask = mask;
      p.q_heads = p.kv_heads = 1;
      p.q_len = 1100;
      p.kv_len = 777;
      p.head_dim = 40;
      const RandomInputs inputs(p);
      const Expectation expected(inputs);
      for (const AttentionKernel* kernel : cpu_kernels(pass)) {
        SCOPED_TRACE(p.id() + " " + std::string(kernel->name));
        CheckedOutputs outputs(p);
        run_kernel(*kernel, inputs, outputs, pool);
        expect_correct(p, expected, outputs.view());
      }
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
