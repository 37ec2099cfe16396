// The kernels' parallel loops; run this suite under ThreadSanitizer.
#include <gtest/gtest.h>

#include "tests/kernels/run_kernel.h"

namespace flashbench::kernels {
namespace {

Problem problem(Pass pass, Mask mask, int64_t kv_heads) {
  Problem p;
  p.pass = pass;
  p.mask = mask;
  p.q_heads = 2 * kv_heads;
  p.kv_heads = kv_heads;
  p.q_len = 150;
  p.kv_len = 170;
  p.head_dim = 24;
  return p;
}

class TiledThreads : public testing::TestWithParam<std::tuple<Pass, Mask>> {};

// Four threads, and fewer heads than threads, so that threads share heads.
TEST_P(TiledThreads, GiveTheSameBitsEachTime) {
  const auto [pass, mask] = GetParam();
  ThreadPool pool(4);
  for (const int64_t kv_heads : {1, 3}) {
    const RandomInputs inputs(problem(pass, mask, kv_heads));
    for (const AttentionKernel* kernel : cpu_kernels(pass)) {
      SCOPED_TRACE(kernel->name);
      CheckedOutputs first(inputs.problem());
      run_kernel(*kernel, inputs, first, pool);
      expect_correct(inputs.problem(), Expectation(inputs), first.view());
      for (int repeat = 0; repeat < 20; ++repeat) {
        CheckedOutputs again(inputs.problem());
        run_kernel(*kernel, inputs, again, pool);
        ASSERT_TRUE(again == first) << "repeat " << repeat;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, TiledThreads,
                         testing::Combine(testing::ValuesIn(kPasses), testing::ValuesIn(kMasks)),
                         [](const auto& test_info) {
                           return std::string(name(std::get<0>(test_info.param))) + "_" +
                                  std::string(name(std::get<1>(test_info.param)));
                         });

TEST(TiledThreadsCount, DoesNotChangeTheForwardResult) {
  Problem tiles = problem(Pass::forward, Mask::causal_bottom_right, 2), chunks = tiles;
  chunks.q_len = 5;
  chunks.kv_len = 3000;
  for (const Problem& p : {tiles, chunks}) {
    const RandomInputs inputs(p);
    for (const AttentionKernel* kernel : cpu_kernels(Pass::forward)) {
      ThreadPool one(1), three(3);
      CheckedOutputs serial(p), parallel(p);
      run_kernel(*kernel, inputs, serial, one);
      run_kernel(*kernel, inputs, parallel, three);
      EXPECT_TRUE(serial == parallel) << kernel->name << " " << p.id();
    }
  }
}

}  // namespace
}  // namespace flashbench::kernels
