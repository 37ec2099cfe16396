// The forward kernel for Hopper, launched repeatedly beside other work.
#include <gtest/gtest.h>

#include <vector>

#include "device/cuda.h"
#include "tests/kernels/launches_beside_work.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Forward;

namespace {

// Each has more tiles than an H200 has multiprocessors, so that tiles are taken from the counter
// that one launch leaves for the next.
const std::vector<Problem> kProblems{
    grouped_problem(Dtype::bf16, Mask::none, 8, 513, 777, 64),
    grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 8, 700, 900, 64),
    grouped_problem(Dtype::bf16, Mask::causal_top_left, 8, 515, 333, 128),
    grouped_problem(Dtype::fp16, Mask::none, 8, 400, 100, 120),
    grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 8, 450, 321, 256),
};

TEST(CudaSm90Launches, TenThousandBesideOtherWorkLeaveTheSameOutputs) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  if (const auto why = kSm90Forward.why_unsupported(kProblems[0], make_cuda_device(0)->info())) {
    GTEST_SKIP() << *why;
  }
  expect_same_outputs_beside_other_work(kSm90Forward, kProblems,
                                        [](Device&, CudaProblem& one, const Problem&) {
                                          EXPECT_EQ(one.outputs().unwritten_elements(), 0);
                                        });
}

}  // namespace
}  // namespace flashbench::kernels
