// The decoding kernel for Hopper: against the fp64 oracle at every number of keys, launched
// repeatedly, and with its warps delayed at random.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "device/cuda.h"
#include "kernels/sm90/cluster_launch.h"
#include "kernels/sm90/decode.cuh"
#include "kernels/sm90/decode_splits.h"
#include "tests/kernels/captured_launch.h"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/random_delay.cuh"
#include "verify/oracle.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Decode;

namespace sm90 {
namespace {

// Each property has its own period, so that its values meet most values of the others.
Problem problem_with(int64_t kv_len) {
  constexpr std::array<int64_t, 6> kGroups{1, 3, 5, 7, 8, 16};
  constexpr std::array<int64_t, 7> kHeadDims{64, 128, 96, 256, 192, 72, 24};
  constexpr std::array kMaskOrder{Mask::none, Mask::causal_bottom_right, Mask::causal_bottom_right,
                                  Mask::causal_top_left, Mask::causal_bottom_right};
  const auto turn = static_cast<size_t>(kv_len);
  Problem p;
  p.dtype = turn / 3 % 2 == 0 ? Dtype::bf16 : Dtype::fp16;
  p.mask = kMaskOrder[turn % kMaskOrder.size()];
  p.layout = kDenseLayouts[turn / 2 % 2];
  p.batch = 1 + kv_len % 3;
  p.kv_heads = 1 + kv_len / 3 % 2;
  p.q_heads = p.kv_heads * kGroups[turn / 2 % kGroups.size()];
  p.q_len = std::min<int64_t>(1 + kv_len * 5 % 16, 64 / p.heads_per_kv_head());
  p.kv_len = kv_len;
  p.head_dim = kHeadDims[turn % kHeadDims.size()];
  return p;
}

// Other numbers of multiprocessors than the GPU has make other splits.
DeviceInfo told(const DeviceInfo& info, int64_t turn) {
  constexpr std::array kMultiprocessors{132, 1, 40, 1000};
  DeviceInfo other = info;
  other.threads = kMultiprocessors[static_cast<size_t>(turn) % kMultiprocessors.size()];
  return other;
}

std::string why_skipped() {
  if (const auto why = why_no_cuda()) return *why;
  const auto why = kSm90Decode.why_unsupported(problem_with(1), make_cuda_device(0)->info());
  return why.value_or("");
}

void expect_right(Device& device, CudaProblem& one, const Problem& p) {
  EXPECT_EQ(one.outputs().damage(), "");
  const Oracle oracle(p, one.host_inputs(), Dtype::fp32, {}, device);
  HostOutputs host = one.outputs().to_host();
  const Verdict verdict = oracle.judge(host.view());
  EXPECT_TRUE(verdict.passed()) << verdict.reason;
}

// Hundreds of keys, beginning with this number.
class CudaSm90Decode : public testing::TestWithParam<int> {};

TEST_P(CudaSm90Decode, IsRightForEveryNumberOfKeys) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  for (int64_t kv_len = GetParam(); kv_len < GetParam() + 100; ++kv_len) {
    const Problem p = problem_with(kv_len);
    const DeviceInfo info = told(device->info(), kv_len);
    ASSERT_EQ(kSm90Decode.why_unsupported(p, info), std::nullopt) << p.id();
    const BlockSizes blocks = kSm90Decode.choose(p, info);
    SCOPED_TRACE(p.id() + " " + kSm90Decode.variant({p, info, blocks}));
    CudaProblem one(*device, kSm90Decode, p, blocks, info);
    one.outputs().poison();
    one.launch();
    finish_or_exit({device->stream()}, 10, p.id());
    expect_right(*device, one, p);
  }
}

INSTANTIATE_TEST_SUITE_P(Keys, CudaSm90Decode, testing::Range(1, 1101, 100),
                         testing::PrintToStringParamName());

// Problems of one, several and no clusters.
const std::vector<Problem> kProblems{
    grouped_problem(Dtype::bf16, Mask::none, 1, 1, 20000, 128),
    grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 2, 4, 300, 64),
    grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 1, 10, 5000, 256),
    grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 8, 7, 2049, 128),
    grouped_problem(Dtype::bf16, Mask::none, 70, 2, 777, 96),
    grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 1, 9, 5, 192),
    grouped_problem(Dtype::fp16, Mask::causal_top_left, 1, 5, 1000, 192),
};

// The counters of one launch serve the next, also where other problems come between.
TEST(CudaSm90DecodeLaunches, LeaveTheSameOutputs) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  std::deque<CudaProblem> problems;
  std::vector<uint64_t> first;
  int split_by_memory = 0;
  for (const Problem& p : kProblems) {
    const BlockSizes blocks = kSm90Decode.choose(p, device->info());
    if (choose_splits(p, device->info(), blocks).clusters > 1) ++split_by_memory;
    problems.emplace_back(*device, kSm90Decode, p).launch();
    finish_or_exit({device->stream()}, 10, p.id());
    SCOPED_TRACE(p.id());
    expect_right(*device, problems.back(), p);
    first.push_back(problems.back().outputs().hash());
  }
  EXPECT_GE(split_by_memory, 1);
  constexpr size_t kLaunches = 2000;
  for (size_t i = 0; i < kLaunches; ++i) {
    CudaProblem& one = problems[i * i % problems.size()];
    if (i + 100 > kLaunches) one.outputs().poison();
    one.launch();
  }
  for (CudaProblem& one : problems) one.launch();
  finish_or_exit({device->stream()}, 20, "repeated launches");
  for (size_t i = 0; i < problems.size(); ++i) {
    EXPECT_EQ(problems[i].outputs().hash(), first[i]) << kProblems[i].id();
  }
}

// ---- Delays

struct Delayed {
  BlockSizes blocks;
  CudaKernel<DecodeArguments> kernel;
};
template <typename T, DecodeConfig kConfig>
Delayed delayed() {
  using Kernel = Decode<T, kConfig, RandomDelay>;
  return {
      {.q = Kernel::kBlockQ,
       .kv = Kernel::kBlockKv,
       .warps = kConfig.warps,
       .stages = kConfig.stages},
      {"sm90_decode", decode_kernel<Kernel>, Kernel::kThreads, sizeof(typename Kernel::Shared)}};
}

struct Sample {
  Problem problem;
  Delayed kernel;
};

std::vector<Sample> samples() {
  const Delayed d128 = delayed<__nv_bfloat16, DecodeConfig{128, 1, 16, 8, 2, 1}>();
  const Delayed d128_rows = delayed<__half, DecodeConfig{128, 2, 16, 4, 2, 2}>();
  const Delayed d64 = delayed<__nv_bfloat16, DecodeConfig{64, 1, 32, 4, 2, 2}>();
  return {{grouped_problem(Dtype::bf16, Mask::none, 1, 1, 20000, 128), d128},
          {grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 4, 5, 4000, 128), d128},
          {grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 1, 10, 3000, 128), d128_rows},
          {grouped_problem(Dtype::bf16, Mask::none, 3, 2, 900, 64), d64}};
}

class CudaSm90DecodeDelays : public testing::TestWithParam<int> {};

TEST_P(CudaSm90DecodeDelays, ChangeNoBit) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const auto [p, delayed] = samples()[static_cast<size_t>(GetParam())];
  const std::vector<KernelFacts> facts = kSm90Decode.facts({p, device->info(), delayed.blocks});
  ASSERT_EQ(facts[0].dynamic_shared_bytes, delayed.kernel.shared_bytes) << "no such variant";
  CudaProblem one(*device, kSm90Decode, p, delayed.blocks);
  const auto stream = static_cast<cudaStream_t>(device->stream().cuda);
  const auto captured = captured_launch<DecodeArguments>(one, stream);
  const ClusterGrid grid{.x = captured.grid.x,
                         .y = captured.grid.y,
                         .z = captured.grid.z,
                         .cluster_size = captured.arguments.cluster_size};
  const auto hash_of_run = [&](unsigned warpgroups, unsigned run) {
    one.outputs().poison();
    hold_up(warpgroups, run, stream);
    launch_clusters(delayed.kernel, grid, captured.arguments, device->stream());
    finish_or_exit({device->stream()}, 10, p.id() + " in run " + std::to_string(run));
    return one.outputs().hash();
  };
  const uint64_t undelayed = hash_of_run(0, 0);
  expect_right(*device, one, p);
  for (unsigned run = 1; run <= 100; ++run) {
    ASSERT_EQ(hash_of_run(run % 4, run), undelayed) << "run " << run;
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaSm90DecodeDelays,
                         testing::Range(0, static_cast<int>(samples().size())),
                         [](const auto& info) {
                           return test_name(samples()[static_cast<size_t>(info.param)].problem);
                         });

}  // namespace
}  // namespace sm90
}  // namespace flashbench::kernels
