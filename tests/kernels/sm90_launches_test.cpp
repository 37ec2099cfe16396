// The forward and backward kernels for Hopper, launched repeatedly beside other work.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "device/cuda.h"
#include "tests/kernels/hopper.h"
#include "tests/kernels/launches_beside_work.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Forward, kSm90ForwardParts, kSm90E4m3;
extern const AttentionKernel kSm90Backward, kSm90BackwardDeterministic;

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

void expect_right_or_skip(const AttentionKernel& kernel, const std::vector<Problem>& problems,
                          Sums sums = Sums::in_order) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  if (const auto why = kernel.why_unsupported(problems[0], make_cuda_device(0)->info())) {
    GTEST_SKIP() << *why;
  }
  expect_right_beside_other_work(kernel, problems, sums);
}

TEST(CudaSm90Launches, TenThousandBesideOtherWorkLeaveTheSameOutputs) {
  expect_right_or_skip(kSm90Forward, kProblems);
}

// Of different lengths and in pages, with empty slots and requests without queries or keys.
const std::vector<RequestLengths> kRequests{{700, 900}, {0, 77}, {64, 1300}, {3, 0},
                                            {333, 80},  {1, 1},  {515, 515}, {0, 0}};
const std::vector<Problem> kProblemsOfRequests{
    problem_of_requests(Dtype::bf16, Mask::causal_bottom_right, Layout::ragged, 8, kRequests, 64),
    problem_of_requests(Dtype::fp16, Mask::none, Layout::ragged, 8, kRequests, 128),
    problem_of_requests(Dtype::bf16, Mask::causal_top_left, Layout::bhsd, 6, kRequests, 256),
    in_pages(grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 8, 500, 900, 128), 16),
    in_pages(problem_of_requests(Dtype::fp16, Mask::causal_bottom_right, Layout::ragged, 8,
                                 kRequests, 64),
             48),
};

TEST(CudaSm90LaunchesByRequest, TenThousandBesideOtherWorkLeaveTheSameOutputs) {
  expect_right_or_skip(kSm90Forward, kProblemsOfRequests);
}

// With another launch that merges the parts, or in pairs, with packed heads, and by request.
Problem in_many_heads(Problem p, int64_t q_heads, int64_t kv_heads) {
  p.batch = 1;
  p.q_heads = q_heads;
  p.kv_heads = kv_heads;
  return p;
}
const std::vector<Problem> kProblemsInParts{
    in_many_heads(grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 1, 33, 3000, 64), 6, 2),
    in_many_heads(grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 1, 300, 4000, 128), 2, 1),
    in_many_heads(grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 1, 40, 3000, 256), 4, 1),
    in_many_heads(grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 1, 100, 3000, 120), 60,
                  60),
    in_pages(in_many_heads(
                 grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 1, 20, 2000, 128), 7, 1),
             16),
    problem_of_requests(Dtype::bf16, Mask::causal_bottom_right, Layout::ragged, 1,
                        {{70, 5000}, {0, 5}, {3, 0}, {100, 3000}, {129, 64}}, 128),
};

TEST(CudaSm90LaunchesInParts, TenThousandBesideOtherWorkLeaveTheSameOutputs) {
  expect_right_or_skip(kSm90ForwardParts, kProblemsInParts);
}

Problem gradients_of(Problem p) {
  p.pass = Pass::backward;
  return p;
}

// Of equal lengths, where some have blocks of keys in parts or in pieces, and by request.
const std::vector<Problem> kBackwardProblems{
    gradients_of(grouped_problem(Dtype::bf16, Mask::none, 2, 500, 301, 64)),
    gradients_of(grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 8, 450, 600, 128)),
    gradients_of(grouped_problem(Dtype::bf16, Mask::causal_top_left, 4, 333, 401, 256)),
    gradients_of(
        in_many_heads(grouped_problem(Dtype::fp16, Mask::none, 1, 1050, 129, 128), 150, 75)),
    gradients_of(problem_of_requests(Dtype::bf16, Mask::none, Layout::ragged, 4, kRequests, 64)),
    gradients_of(problem_of_requests(Dtype::fp16, Mask::causal_bottom_right, Layout::ragged, 2,
                                     kRequests, 128)),
    gradients_of(problem_of_requests(Dtype::bf16, Mask::causal_bottom_right, Layout::bhsd, 2,
                                     kRequests, 256)),
};

TEST(CudaSm90BackwardLaunches, TenThousandBesideOtherWorkLeaveRightOutputs) {
  expect_right_or_skip(kSm90Backward, kBackwardProblems, Sums::in_any_order);
}
TEST(CudaSm90BackwardDeterministicLaunches, TenThousandBesideOtherWorkLeaveTheSameOutputs) {
  expect_right_or_skip(kSm90BackwardDeterministic, kBackwardProblems);
}

TEST(Sm90Launches, AreOfKernelsThatTakeTheirProblems) {
  const auto expect_all = [](const AttentionKernel& kernel, const std::vector<Problem>& problems) {
    for (const Problem& p : problems) {
      EXPECT_EQ(p.invalid(), std::nullopt) << p.id();
      EXPECT_EQ(kernel.why_unsupported(p, hopper()), std::nullopt) << kernel.name << p.id();
    }
  };
  expect_all(kSm90Forward, kProblems);
  expect_all(kSm90Forward, kProblemsOfRequests);
  expect_all(kSm90ForwardParts, kProblemsInParts);
  expect_all(kSm90Backward, kBackwardProblems);
  expect_all(kSm90BackwardDeterministic, kBackwardProblems);
}

// Each has counters of its own.
TEST(Sm90Launches, HaveEveryVariantThatCounts) {
  const auto has = [](const AttentionKernel& kernel, const std::vector<Problem>& problems,
                      const std::string& text) {
    return std::ranges::any_of(problems, [&](const Problem& p) {
      return kernel.variant({p, hopper(), kernel.choose(p, hopper())}).find(text) !=
             std::string::npos;
    });
  };
  EXPECT_TRUE(has(kSm90Forward, kProblems, "pieces"));
  EXPECT_TRUE(has(kSm90ForwardParts, kProblemsInParts, "merged in pairs"));
  EXPECT_TRUE(has(kSm90ForwardParts, kProblemsInParts, "packed heads"));
  EXPECT_TRUE(has(kSm90Backward, kBackwardProblems, "parts"));
  EXPECT_TRUE(has(kSm90Backward, kBackwardProblems, "pieces"));
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
  expect_right_or_skip(kSm90E4m3, kE4m3Problems);
}

}  // namespace
}  // namespace flashbench::kernels
