// Launches a kernel ten thousand times while another stream keeps the GPU busy.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda_bytes.h"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/on_gpu.h"

namespace flashbench::kernels {

// Thread blocks start late, in any order, and never all at once, and each launch finds the counters
// that another problem's launch has left. The outputs must stay those of each problem's first
// launch, which `expect_right` judges.
inline void expect_same_outputs_beside_other_work(
    const AttentionKernel& kernel, const std::vector<Problem>& problems,
    const std::function<void(Device&, CudaProblem&, const Problem&)>& expect_right) {
  constexpr int kBatches = 100, kLaunches = 100, kLaunchesAFlip = 12;
  constexpr double kSeconds = 20;
  const std::unique_ptr<Device> device = make_cuda_device(0), other = make_cuda_device(0);
  const Buffer load = other->allocate(size_t{256} << 20, MemoryUse::workspace);
  const auto flip = [&] {
    cuda_bytes::flip_signs(load.data(), int64_t{1} << 26, 4,
                           static_cast<cudaStream_t>(other->stream().cuda));
  };

  std::deque<CudaProblem> all;
  std::vector<uint64_t> first;
  for (const Problem& p : problems) {
    SCOPED_TRACE(p.id());
    all.emplace_back(*device, kernel, p).launch();
    finish_or_exit({device->stream()}, kSeconds, "the first launch of " + p.id());
    expect_right(*device, all.back(), p);
    first.push_back(all.back().outputs().hash());
  }

  for (int batch = 0; batch < kBatches; ++batch) {
    if (batch + 1 == kBatches) {
      for (CudaProblem& one : all) one.outputs().poison();
    }
    for (int i = 0; i < kLaunches; ++i) {
      if (i % kLaunchesAFlip == 0) flip();
      all[static_cast<size_t>(batch + i) % all.size()].launch();
    }
    // The queue is short enough that no launch has to wait for space.
    finish_or_exit({device->stream(), other->stream()}, kSeconds,
                   "launch " + std::to_string((batch + 1) * kLaunches) + " or one before");
  }
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].outputs().hash(), first[i]) << problems[i].id();
    EXPECT_EQ(all[i].outputs().damage(), "") << problems[i].id();
  }
}

}  // namespace flashbench::kernels
