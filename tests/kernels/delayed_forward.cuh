// Runs a forward kernel for Hopper with its roles delayed at random. Whichever is late, and on any
// number of multiprocessors, outputs must be the same bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "device/cuda.h"
#include "kernels/common/launch.h"
#include "kernels/sm90/cluster_launch.h"
#include "tests/kernels/captured_launch.h"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/random_delay.cuh"

namespace flashbench::kernels::sm90 {

// Launches `delayed` as `one` would launch the kernel without delays, its last or, with another
// behind it that launch_rest() launches, its first. Calls check_first() when `one` has the outputs
// of a run in which nothing is delayed.
template <typename Arguments, typename Rest, typename Check>
void expect_no_bit_changes(Device& device, const Problem& problem, CudaProblem& one,
                           const CudaKernel<Arguments>& delayed, Which which,
                           const Rest& launch_rest, const Check& check_first) {
  const auto stream = static_cast<cudaStream_t>(device.stream().cuda);
  const auto captured = captured_launch<Arguments>([&] { one.launch(); }, stream, which);
  const bool in_pairs = captured.grid.z > 1;
  const int64_t all_thread_blocks = int64_t{captured.grid.x} * captured.grid.z;
  const auto hash_of_run = [&](unsigned warpgroups, unsigned run, int64_t thread_blocks) {
    one.outputs().poison();
    hold_up(warpgroups, run, stream);
    if (in_pairs) {
      launch_clusters(delayed, {.z = thread_blocks, .cluster_size = 2}, captured.arguments,
                      device.stream());
    } else {
      launch_kernel(delayed, thread_blocks, captured.arguments, device.stream());
    }
    launch_rest();
    finish_or_exit({device.stream()}, 10, problem.id() + " in run " + std::to_string(run));
    return one.outputs().hash();
  };

  const uint64_t undelayed = hash_of_run(0, 0, all_thread_blocks);
  EXPECT_EQ(one.outputs().damage(), "");
  check_first();

  constexpr unsigned kRuns = 100, kSubsets = 16;  // of a producer and up to three consumers
  const int64_t grids[] = {1, 3, all_thread_blocks};
  for (unsigned run = 1; run <= kRuns; ++run) {
    const int64_t thread_blocks =
        in_pairs ? all_thread_blocks : std::min(grids[run % 3], all_thread_blocks);
    ASSERT_EQ(hash_of_run(run % kSubsets, run, thread_blocks), undelayed)
        << "run " << run << ", warpgroups held up " << run % kSubsets << ", " << thread_blocks
        << " thread blocks";
  }
}

template <typename Arguments, typename Check>
void expect_no_bit_changes(Device& device, const Problem& problem, CudaProblem& one,
                           const CudaKernel<Arguments>& delayed, const Check& check_first) {
  expect_no_bit_changes(
      device, problem, one, delayed, Which::last, [] {}, check_first);
}

}  // namespace flashbench::kernels::sm90
