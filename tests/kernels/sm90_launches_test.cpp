// The forward kernels for Hopper, launched repeatedly beside other work.
#include <gtest/gtest.h>

#include <vector>

#include "device/cuda.h"
#include "tests/kernels/launches_beside_work.h"
#include "verify/oracle.h"
#include "verify/storage.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Forward, kSm90E4m3;

namespace {

// Each has more tiles than an H200 has multiprocessors, so that tiles are taken from the counter
// that one launch leaves for the next.
const std::vector<Problem> kProblems{
    grouped_problem(Dtype::bf16, Mask::none, 8, 513, 777, 64),
    grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 8, 700, 900, 64),
    grouped_problem(Dtype::bf16, Mask::causal_top_left, 8, 515, 333, 128),
    grouped_problem(Dtype::fp16, Mask::none, 8, 400, 100, 120),
    grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 8, 450, 321, 256),
    // Its last wave is in pieces.
    grouped_problem(Dtype::bf16, Mask::none, 23, 190, 4100, 64),
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

Problem rounded(Problem p, Quantize quantize) {
  p.quantize = quantize;
  return p;
}

// The kernel starts while the launch that transposes V, or rounds the inputs, ends. Of those that
// round, one has more blocks of rows than run at the same time, one a head with more (at head_dim
// 64, where heads take turns, one has two heads with more together, one each), and one a head with
// so many that its largest magnitude is found by a launch before.
const std::vector<Problem> kE4m3Problems{
    grouped_problem(Dtype::e4m3, Mask::none, 8, 513, 777, 64),
    grouped_problem(Dtype::e4m3, Mask::causal_bottom_right, 8, 515, 900, 128),
    rounded(grouped_problem(Dtype::bf16, Mask::none, 8, 513, 777, 64), Quantize::e4m3_head),
    rounded(grouped_problem(Dtype::bf16, Mask::none, 8, 900, 1300, 128), Quantize::e4m3_head),
    rounded(grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 8, 450, 321, 256),
            Quantize::e4m3_head),
    rounded(grouped_problem(Dtype::bf16, Mask::none, 1, 3, 40000, 128), Quantize::e4m3_head),
    rounded(grouped_problem(Dtype::bf16, Mask::none, 1, 3, 110000, 128), Quantize::e4m3_head),
    rounded(grouped_problem(Dtype::bf16, Mask::none, 2, 3, 50000, 64), Quantize::e4m3_head),
    rounded(grouped_problem(Dtype::bf16, Mask::none, 2, 3, 120000, 64), Quantize::e4m3_head),
    rounded(grouped_problem(Dtype::bf16, Mask::none, 8, 400, 100, 128),
            Quantize::e4m3_tensor_hadamard),
};

TEST(CudaSm90E4m3Launches, TenThousandBesideOtherWorkLeaveTheSameOutputs) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  if (const auto why = kSm90E4m3.why_unsupported(kE4m3Problems[0], make_cuda_device(0)->info())) {
    GTEST_SKIP() << *why;
  }
  expect_same_outputs_beside_other_work(
      kSm90E4m3, kE4m3Problems, [](Device& device, CudaProblem& one, const Problem& p) {
        const Oracle oracle(p, one.host_inputs(),
                            Storage(Dtype::fp32, Dtype::fp32, kSm90E4m3.accumulator), {}, device);
        HostOutputs host = one.outputs().to_host();
        const Verdict verdict = oracle.judge(host.view());
        EXPECT_TRUE(verdict.passed()) << p.id() << ": " << verdict.reason;
      });
}

}  // namespace
}  // namespace flashbench::kernels
