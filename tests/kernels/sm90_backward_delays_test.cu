// The backward pass for Hopper with the roles of its main kernel delayed at random. Whichever is
// late, all gradients must be correct, and ordered sums must be the same bit for bit: dK and dV if
// no thread blocks share keys, all gradients in the deterministic kernel.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/cu_seqlens.h"
#include "device/cuda.h"
#include "device/device_tensors.h"
#include "inputs/inputs.h"
#include "kernels/sm90/backward.cuh"
#include "kernels/sm90/backward_by_gradient.cuh"
#include "kernels/sm90/backward_pairs.cuh"
#include "tests/kernels/captured_launch.h"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/random_delay.cuh"
#include "verify/oracle.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Backward, kSm90BackwardDeterministic;

namespace sm90 {
namespace {

// A variant of the main kernel with delays.
struct DelayedKernel {
  void (*function)(BackwardArguments);
  int shared_bytes;
};
struct Delayed {
  DelayedKernel kernel, in_pieces;  // the latter for dense problems in pieces
  bool deterministic;
};
template <typename Kernel>
DelayedKernel delayed_kernel() {
  if constexpr (Kernel::kPairs) {
    return {backward_kernel_of_pairs<Kernel>, sizeof(typename Kernel::Shared)};
  } else {
    return {backward_kernel<Kernel>, sizeof(typename Kernel::Shared)};
  }
}
template <typename T, BackwardConfig kConfig>
Delayed delayed() {
  constexpr bool kMaySplit = !kConfig.deterministic && !kConfig.by_request;
  constexpr BackwardConfig kInPieces =
      backward_config(kConfig.head_dim, kConfig.deterministic, kConfig.by_request, kMaySplit);
  return {delayed_kernel<Backward<T, kConfig, RandomDelay>>(),
          delayed_kernel<Backward<T, kInPieces, RandomDelay>>(), kConfig.deterministic};
}
template <typename T, bool kDeterministic = false, bool kByRequest = false>
Delayed delayed_192() {
  constexpr bool kMaySplit = !kDeterministic && !kByRequest;
  using Kernel = BackwardByGradient<T, 192, 80, kDeterministic, kByRequest, false, RandomDelay>;
  using InPieces =
      BackwardByGradient<T, 192, 80, kDeterministic, kByRequest, kMaySplit, RandomDelay>;
  return {delayed_kernel<Kernel>(), delayed_kernel<InPieces>(), kDeterministic};
}
template <typename T, bool kDeterministic = false, bool kByRequest = false>
Delayed delayed_pairs() {
  constexpr bool kMaySplit = !kDeterministic && !kByRequest;
  using Kernel = BackwardPairs<T, kDeterministic, kByRequest, false, RandomDelay>;
  using InPieces = BackwardPairs<T, kDeterministic, kByRequest, kMaySplit, RandomDelay>;
  return {delayed_kernel<Kernel>(), delayed_kernel<InPieces>(), kDeterministic};
}

struct Sample {
  Problem problem;
  Delayed delayed;
  bool shares_keys = true;  // on any GPU large enough for these problems to be small
  Distribution distribution = Distribution::normal;
};

std::vector<Sample> samples() {
  const Delayed d64 = delayed<__nv_bfloat16, backward_config(64)>();
  const Delayed d80 = delayed<__nv_bfloat16, backward_config(80)>();
  const Delayed d96 = delayed<__half, backward_config(96)>();
  const Delayed d128 = delayed<__half, backward_config(128)>();
  const Delayed d192 = delayed_192<__half>();
  const Delayed d256 = delayed_pairs<__nv_bfloat16>();
  const Delayed ordered_64 = delayed<__half, backward_config(64, true)>();
  const Delayed ordered_96 = delayed<__nv_bfloat16, backward_config(96, true)>();
  const Delayed ordered_128 = delayed<__nv_bfloat16, backward_config(128, true)>();
  const Delayed ordered_192 = delayed_192<__half, true>();
  const Delayed ordered_256 = delayed_pairs<__nv_bfloat16, true>();
  const auto problem = [](Dtype dtype, Mask mask, int64_t q_len, int64_t kv_len, int64_t head_dim) {
    Problem p = grouped_problem(dtype, mask, 2, q_len, kv_len, head_dim);
    p.pass = Pass::backward;
    return p;
  };
  const auto requests = [](Dtype dtype, Mask mask, Layout layout, int64_t head_dim) {
    Problem p =
        problem_of_requests(dtype, mask, layout, 2,
                            {{0, 5}, {301, 300}, {64, 500}, {1, 1}, {400, 80}, {20, 0}}, head_dim);
    p.pass = Pass::backward;
    return p;
  };
  const auto windowed = [](Problem p, int64_t left) {
    p.window_left = left;
    return p;
  };
  const auto many_heads_of_requests = [&](Dtype dtype, Mask mask, int64_t head_dim) {
    Problem p = requests(dtype, mask, Layout::ragged, head_dim);
    p.q_heads = p.kv_heads = 300;
    return p;
  };
  // Without a mask, the blocks of keys of the last wave in pieces (kernels/common/last_wave.h),
  // of 132 multiprocessors in two to four.
  const auto in_pieces = [&](Dtype dtype, int64_t kv_heads, int64_t head_dim) {
    Problem p = problem_of_requests(dtype, Mask::none, Layout::ragged, 2,
                                    {{1050, 129}, {20, 0}, {520, 300}}, head_dim);
    p.pass = Pass::backward;
    p.q_heads = 2 * kv_heads;
    p.kv_heads = kv_heads;
    return p;
  };
  // The same at equal lengths.
  const auto dense_in_pieces = [&](Dtype dtype, int64_t kv_heads, int64_t head_dim) {
    Problem p = problem(dtype, Mask::none, 1050, 129, head_dim);
    p.batch = 1;
    p.q_heads = 2 * kv_heads;
    p.kv_heads = kv_heads;
    return p;
  };
  // More K/V heads than any GPU has multiprocessors.
  const auto many_heads = [&](Dtype dtype, Mask mask, int64_t q_len, int64_t head_dim) {
    Problem p = problem(dtype, mask, q_len, 130, head_dim);
    p.q_heads = p.kv_heads = 300;
    return p;
  };
  return {
      {many_heads(Dtype::bf16, Mask::none, 650, 64), d64, false},
      {many_heads(Dtype::fp16, Mask::causal_bottom_right, 70, 96), d96, false},
      {many_heads(Dtype::bf16, Mask::none, 330, 80), d80, false},
      {many_heads(Dtype::fp16, Mask::none, 70, 128), d128, false},
      {many_heads(Dtype::fp16, Mask::causal_bottom_right, 330, 128), d128, false},
      {many_heads(Dtype::fp16, Mask::causal_bottom_right, 330, 128), d128, false,
       Distribution::inf_key},
      {many_heads(Dtype::fp16, Mask::none, 330, 192), d192, false},
      {many_heads(Dtype::bf16, Mask::causal_bottom_right, 70, 256), d256, false},
      {many_heads(Dtype::fp16, Mask::causal_bottom_right, 650, 64), ordered_64, false},
      {problem(Dtype::bf16, Mask::none, 500, 301, 64), d64},
      {problem(Dtype::bf16, Mask::none, 1, 1, 64), d64, false},
      {problem(Dtype::bf16, Mask::causal_bottom_right, 601, 700, 56), d64},
      {problem(Dtype::fp16, Mask::none, 301, 420, 96), d96},
      {problem(Dtype::fp16, Mask::causal_bottom_right, 330, 300, 88), d96},
      {problem(Dtype::bf16, Mask::none, 301, 420, 80), d80},
      {problem(Dtype::bf16, Mask::causal_bottom_right, 330, 300, 72), d80},
      {problem(Dtype::fp16, Mask::none, 300, 777, 128), d128},
      {problem(Dtype::fp16, Mask::causal_top_left, 333, 500, 120), d128},
      {problem(Dtype::fp16, Mask::causal_top_left, 333, 500, 120), d128, true,
       Distribution::nan_key},
      {problem(Dtype::fp16, Mask::causal_bottom_right, 600, 450, 128), d128},
      {problem(Dtype::fp16, Mask::none, 500, 301, 160), d192},
      {problem(Dtype::fp16, Mask::none, 1, 1, 192), d192, false},
      {problem(Dtype::fp16, Mask::causal_bottom_right, 301, 400, 184), d192},
      {problem(Dtype::fp16, Mask::causal_top_left, 333, 500, 192), d192},
      {problem(Dtype::bf16, Mask::none, 300, 401, 256), d256},
      {problem(Dtype::bf16, Mask::causal_bottom_right, 401, 500, 248), d256},
      {problem(Dtype::fp16, Mask::causal_top_left, 333, 650, 256), delayed_pairs<__half>()},
      {problem(Dtype::bf16, Mask::none, 1, 1, 256), d256, false},
      {problem(Dtype::bf16, Mask::none, 130, 65, 208), d256},
      {problem(Dtype::fp16, Mask::none, 501, 700, 64), ordered_64},
      {problem(Dtype::fp16, Mask::none, 1, 1, 64), ordered_64, false},
      {problem(Dtype::fp16, Mask::causal_bottom_right, 901, 900, 64), ordered_64},
      {problem(Dtype::bf16, Mask::causal_top_left, 700, 601, 88), ordered_96},
      {problem(Dtype::bf16, Mask::none, 333, 900, 128), ordered_128},
      {problem(Dtype::bf16, Mask::causal_bottom_right, 777, 1000, 128), ordered_128},
      {problem(Dtype::fp16, Mask::causal_bottom_right, 600, 500, 192), ordered_192},
      {problem(Dtype::bf16, Mask::none, 400, 600, 256), ordered_256},
      // Rotating, as the one before.
      {problem(Dtype::fp16, Mask::none, 801, 700, 64), ordered_64},
      {problem(Dtype::bf16, Mask::none, 900, 601, 128), ordered_128},
      {problem(Dtype::fp16, Mask::none, 500, 300, 192), ordered_192},
      {problem(Dtype::bf16, Mask::causal_top_left, 450, 333, 256), ordered_256},
      {many_heads_of_requests(Dtype::bf16, Mask::none, 64),
       delayed<__nv_bfloat16, backward_config(64, false, true)>(), false},
      {many_heads_of_requests(Dtype::fp16, Mask::none, 128),
       delayed<__half, backward_config(128, false, true)>(), false},
      {in_pieces(Dtype::bf16, 136, 64), delayed<__nv_bfloat16, backward_config(64, false, true)>(),
       false},
      {in_pieces(Dtype::bf16, 150, 64), delayed<__nv_bfloat16, backward_config(64, false, true)>(),
       false},
      {in_pieces(Dtype::fp16, 136, 96), delayed<__half, backward_config(96, false, true)>(), false},
      {in_pieces(Dtype::fp16, 136, 128), delayed<__half, backward_config(128, false, true)>(),
       false},
      {in_pieces(Dtype::fp16, 150, 128), delayed<__half, backward_config(128, false, true)>(),
       false},
      {in_pieces(Dtype::fp16, 136, 192), delayed_192<__half, false, true>(), false},
      {in_pieces(Dtype::bf16, 136, 256), delayed_pairs<__nv_bfloat16, false, true>(), false},
      {dense_in_pieces(Dtype::bf16, 75, 64), d64, false},
      {dense_in_pieces(Dtype::bf16, 104, 64), d64, false},
      {dense_in_pieces(Dtype::bf16, 96, 80), d80, false},
      {dense_in_pieces(Dtype::fp16, 75, 96), d96, false},
      {dense_in_pieces(Dtype::fp16, 75, 128), d128, false},
      {dense_in_pieces(Dtype::fp16, 104, 128), d128, false},
      {dense_in_pieces(Dtype::fp16, 75, 192), d192, false},
      {dense_in_pieces(Dtype::fp16, 96, 192), d192, false},
      {dense_in_pieces(Dtype::bf16, 48, 256), d256, false},
      {dense_in_pieces(Dtype::bf16, 75, 256), d256, false},
      {requests(Dtype::bf16, Mask::causal_bottom_right, Layout::ragged, 64),
       delayed<__nv_bfloat16, backward_config(64, false, true)>()},
      {requests(Dtype::fp16, Mask::causal_top_left, Layout::bhsd, 128),
       delayed<__half, backward_config(128, false, true)>()},
      {requests(Dtype::fp16, Mask::none, Layout::ragged, 192), delayed_192<__half, false, true>()},
      {requests(Dtype::bf16, Mask::causal_bottom_right, Layout::ragged, 256),
       delayed_pairs<__nv_bfloat16, false, true>()},
      {windowed(problem(Dtype::bf16, Mask::causal_bottom_right, 500, 700, 256), 180),
       delayed_pairs<__nv_bfloat16, false, true>()},
      {requests(Dtype::fp16, Mask::causal_bottom_right, Layout::ragged, 64),
       delayed<__half, backward_config(64, true, true)>()},
      {requests(Dtype::bf16, Mask::none, Layout::ragged, 128),
       delayed<__nv_bfloat16, backward_config(128, true, true)>()},
      {requests(Dtype::fp16, Mask::causal_bottom_right, Layout::ragged, 192),
       delayed_192<__half, true, true>()},
      {requests(Dtype::fp16, Mask::causal_bottom_right, Layout::ragged, 256),
       delayed_pairs<__half, true, true>()},
      {windowed(problem(Dtype::fp16, Mask::causal_bottom_right, 500, 700, 256), 180),
       delayed_pairs<__half, true, true>()},
      {windowed(problem(Dtype::fp16, Mask::causal_bottom_right, 700, 900, 64), 200),
       delayed<__half, backward_config(64, true, true)>()},
      {windowed(requests(Dtype::bf16, Mask::causal_bottom_right, Layout::ragged, 128), 150),
       delayed<__nv_bfloat16, backward_config(128, true, true)>()}};
}

// Replaces the main kernel of a pass. Returns how many kernels it was.
int replace_main_kernel(cudaGraph_t graph, const DelayedKernel& delayed) {
  size_t count = 4;
  cudaGraphNode_t nodes[4];
  FLASHBENCH_CUDA(cudaGraphGetNodes(graph, nodes, &count));
  FLASHBENCH_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(delayed.function),
                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       delayed.shared_bytes));
  int replaced = 0;
  for (size_t i = 0; i < count; ++i) {
    cudaKernelNodeParams launched;
    FLASHBENCH_CUDA(cudaGraphKernelNodeGetParams(nodes[i], &launched));
    constexpr unsigned kMainThreads = 384;  // or more; the other kernels have fewer
    if (launched.blockDim.x < kMainThreads) continue;
    launched.func = reinterpret_cast<void*>(delayed.function);
    launched.sharedMemBytes = static_cast<unsigned>(delayed.shared_bytes);
    FLASHBENCH_CUDA(cudaGraphKernelNodeSetParams(nodes[i], &launched));
    ++replaced;
  }
  return replaced;
}

std::string bytes(const TensorView& dense) {
  return {static_cast<const char*>(dense.data),
          static_cast<size_t>(dense.elements() * element_size(dense.dtype))};
}

class CudaSm90BackwardDelays : public testing::TestWithParam<int> {};

TEST_P(CudaSm90BackwardDelays, ChangeNoBitOfWhatHasAnOrder) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const auto [p, delayed, shares_keys, distribution] = samples()[static_cast<size_t>(GetParam())];
  const AttentionKernel& kernel =
      delayed.deterministic ? kSm90BackwardDeterministic : kSm90Backward;
  if (const auto why = kernel.why_unsupported(p, device->info())) GTEST_SKIP() << *why;

  HostTensors host(p, InputSpec{.distribution = distribution}, *device->stream().threads);
  const Oracle oracle(p, host.inputs(), Dtype::fp32, {}, *device);
  oracle.exact_forward(host.mutable_o(), host.mutable_logsumexp());
  const DeviceInputs inputs(*device, p, Placement::contiguous, host.inputs());
  DeviceOutputs outputs(*device, p, Placement::contiguous);
  const CuSeqlens cu_seqlens(*device, p);
  const Launch at{p, device->info(), kernel.choose(p, device->info()), cu_seqlens.queries(),
                  cu_seqlens.keys()};
  ASSERT_EQ(kernel.variant(at).find("parts") != std::string::npos, shares_keys);
  const Buffer workspace = device->allocate(kernel.workspace_bytes(at), MemoryUse::workspace);
  const auto stream = static_cast<cudaStream_t>(device->stream().cuda);
  const bool in_pieces = kernel.variant(at).find("pieces") != std::string::npos;
  int replaced = 0;
  const CapturedGraph delayed_pass(
      [&] { kernel.launch(at, inputs.view(), outputs.view(), workspace.data(), device->stream()); },
      stream,
      [&](cudaGraph_t graph) {
        replaced = replace_main_kernel(graph, in_pieces ? delayed.in_pieces : delayed.kernel);
      });
  ASSERT_EQ(replaced, 1);

  std::string dq, dk, dv;
  constexpr unsigned kRuns = 50, kSubsets = 16;  // of up to four warpgroups
  for (unsigned run = 0; run <= kRuns; ++run) {
    outputs.poison();
    // Nothing may be read there before this run has written it.
    FLASHBENCH_CUDA(cudaMemsetAsync(workspace.data(), 0xff, kernel.workspace_bytes(at), stream));
    hold_up(run % kSubsets, run, stream);
    delayed_pass.launch();
    finish_or_exit({device->stream()}, 10, p.id() + " in run " + std::to_string(run));
    HostOutputs found = outputs.to_host();
    const Verdict verdict = oracle.judge(found.view());
    ASSERT_TRUE(verdict.passed()) << "run " << run << ": " << verdict.reason;
    if (run == 0) {
      dq = bytes(found.view().dq);
      dk = bytes(found.view().dk);
      dv = bytes(found.view().dv);
    }
    if (delayed.deterministic || !shares_keys) {
      ASSERT_TRUE(bytes(found.view().dk) == dk) << "run " << run;
      ASSERT_TRUE(bytes(found.view().dv) == dv) << "run " << run;
    }
    if (delayed.deterministic) {
      ASSERT_TRUE(bytes(found.view().dq) == dq) << "run " << run;
    }
  }
  EXPECT_EQ(outputs.damage(), "");
}

INSTANTIATE_TEST_SUITE_P(, CudaSm90BackwardDelays,
                         testing::Range(0, static_cast<int>(samples().size())),
                         [](const auto& info) {
                           const Sample sample = samples()[static_cast<size_t>(info.param)];
                           return test_name(sample.problem) + "_" +
                                  std::string(name(sample.distribution));
                         });

}  // namespace
}  // namespace sm90
}  // namespace flashbench::kernels
