// Launches a kernel ten thousand times while another stream keeps the GPU busy.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda_bytes.h"
#include "tests/kernels/judged_problem.h"
#include "tests/kernels/on_gpu.h"

namespace flashbench::kernels {

// Of a kernel whose sums have no order, outputs differ by rounding.
enum class Sums { in_order, in_any_order };

// Thread blocks start late, in any order, and never all at once, and each launch finds the counters
// that the one before has left in the problem's workspace. The outputs must be right after the
// first launch and the last, and the same if sums have an order.
inline void expect_right_beside_other_work(const AttentionKernel& kernel,
                                           const std::vector<Problem>& problems,
                                           Sums sums = Sums::in_order) {
  constexpr int kBatches = 100, kLaunches = 100, kLaunchesAFlip = 12;
  constexpr double kSeconds = 20;
  const std::unique_ptr<Device> device = make_cuda_device(0), other = make_cuda_device(0);
  const Buffer load = other->allocate(size_t{256} << 20, MemoryUse::workspace);
  const auto flip = [&] {
    cuda_bytes::flip_signs(load.data(), int64_t{1} << 26, 4,
                           static_cast<cudaStream_t>(other->stream().cuda));
  };

  std::deque<JudgedProblem> all;
  std::vector<uint64_t> first;
  for (const Problem& p : problems) {
    SCOPED_TRACE(p.id());
    JudgedProblem& one = all.emplace_back(*device, kernel, p);
    one.cuda.launch();
    finish_or_exit({device->stream()}, kSeconds, "the first launch of " + p.id());
    one.expect_right();
    first.push_back(one.cuda.outputs().hash());
  }

  for (int batch = 0; batch < kBatches; ++batch) {
    if (batch + 1 == kBatches) {
      for (JudgedProblem& one : all) one.cuda.outputs().poison();
    }
    for (int i = 0; i < kLaunches; ++i) {
      if (i % kLaunchesAFlip == 0) flip();
      all[static_cast<size_t>(batch + i) % all.size()].cuda.launch();
    }
    // The queue is short enough that no launch has to wait for space.
    finish_or_exit({device->stream(), other->stream()}, kSeconds,
                   "launch " + std::to_string((batch + 1) * kLaunches) + " or one before");
  }
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(problems[i].id());
    all[i].expect_right();
    if (sums == Sums::in_order) {
      EXPECT_EQ(all[i].cuda.outputs().hash(), first[i]);
    }
  }
}

}  // namespace flashbench::kernels
