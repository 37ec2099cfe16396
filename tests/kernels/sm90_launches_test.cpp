// Launches the forward kernel for Hopper repeatedly while the GPU is busy with other work: thread
// blocks start late, in any order, and never all at once.
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "device/cuda.h"
#include "device/cuda_bytes.h"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/on_gpu.h"

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
  const std::unique_ptr<Device> device = make_cuda_device(0), other = make_cuda_device(0);
  if (const auto why = kSm90Forward.why_unsupported(kProblems[0], device->info())) {
    GTEST_SKIP() << *why;
  }
  constexpr int kBatches = 100, kLaunches = 100, kLaunchesAFlip = 12;
  constexpr double kSeconds = 20;
  const Buffer load = other->allocate(size_t{256} << 20, MemoryUse::workspace);
  const auto flip = [&] {
    cuda_bytes::flip_signs(load.data(), int64_t{1} << 26, 4,
                           static_cast<cudaStream_t>(other->stream().cuda));
  };

  std::deque<CudaProblem> problems;
  std::vector<uint64_t> first;
  for (const Problem& p : kProblems) {
    problems.emplace_back(*device, kSm90Forward, p).launch();
    finish_or_exit({device->stream()}, kSeconds, "the first launch of " + p.id());
    EXPECT_EQ(problems.back().outputs().unwritten_elements(), 0) << p.id();
    first.push_back(problems.back().outputs().hash());
  }

  for (int batch = 0; batch < kBatches; ++batch) {
    if (batch + 1 == kBatches) {
      for (CudaProblem& one : problems) one.outputs().poison();
    }
    for (int i = 0; i < kLaunches; ++i) {
      if (i % kLaunchesAFlip == 0) flip();
      problems[static_cast<size_t>(i) % problems.size()].launch();
    }
    // The queue is short enough that no launch has to wait for space.
    finish_or_exit({device->stream(), other->stream()}, kSeconds,
                   "launch " + std::to_string((batch + 1) * kLaunches) + " or one before");
  }
  for (size_t i = 0; i < problems.size(); ++i) {
    EXPECT_EQ(problems[i].outputs().hash(), first[i]) << kProblems[i].id();
    EXPECT_EQ(problems[i].outputs().damage(), "") << kProblems[i].id();
  }
}

}  // namespace
}  // namespace flashbench::kernels
