// The forward kernel for Hopper with the keys in parts: which problems it takes, and its roles
// delayed at random (delayed_forward.cuh).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/cuda.h"
#include "kernels/common/launch.h"
#include "kernels/sm90/forward.cuh"
#include "kernels/sm90/merge_parts.cuh"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/delayed_forward.cuh"
#include "tests/kernels/hopper.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/random_delay.cuh"
#include "verify/oracle.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Forward, kSm90ForwardParts;

namespace sm90 {
namespace {

Problem chunk(int64_t q_heads, int64_t kv_heads, int64_t q_len, int64_t kv_len,
              int64_t head_dim = 128, Mask mask = Mask::causal_bottom_right) {
  Problem p;
  p.dtype = Dtype::bf16;
  p.mask = mask;
  p.q_heads = q_heads;
  p.kv_heads = kv_heads;
  p.q_len = q_len;
  p.kv_len = kv_len;
  p.head_dim = head_dim;
  return p;
}

std::string variant(const Problem& p, const DeviceInfo& device) {
  return kSm90ForwardParts.variant({p, device, kSm90ForwardParts.choose(p, device)});
}

TEST(Sm90ForwardParts, TakesFewQueriesOfManyKeys) {
  const DeviceInfo device = hopper();
  EXPECT_EQ(kSm90ForwardParts.why_unsupported(chunk(32, 8, 128, 65536), device), std::nullopt);
  EXPECT_EQ(kSm90ForwardParts.why_unsupported(chunk(8, 1, 512, 65536), device), std::nullopt);
  for (const Problem& p : {chunk(32, 8, 4096, 4096), chunk(32, 8, 128, 128)}) {
    EXPECT_THAT(kSm90ForwardParts.why_unsupported(p, device).value_or(""),
                testing::HasSubstr("too few for the GPU"))
        << p.id();
  }
}

TEST(Sm90ForwardParts, PacksHeadsWhereTheirQueriesFillNoBlock) {
  const DeviceInfo device = hopper();
  EXPECT_THAT(variant(chunk(32, 8, 32, 65536), device), testing::HasSubstr("packed heads"));
  EXPECT_THAT(variant(chunk(32, 32, 32, 65536), device),
              testing::Not(testing::HasSubstr("packed heads")));
  EXPECT_THAT(variant(chunk(32, 8, 128, 65536), device),
              testing::Not(testing::HasSubstr("packed heads")));
}

// Two parts need no second launch if all thread blocks run at the same time.
TEST(Sm90ForwardParts, MergesTwoPartsInPairs) {
  const DeviceInfo device = hopper();
  const Problem p = chunk(32, 8, 256, 8192);
  EXPECT_THAT(variant(p, device), testing::HasSubstr("2 parts, merged in pairs"));
  const Launch at{p, device, kSm90ForwardParts.choose(p, device)};
  EXPECT_EQ(kSm90ForwardParts.schedule(at)->partial_bytes, 0);
  EXPECT_THAT(variant(chunk(32, 8, 128, 8192), device), testing::Not(testing::HasSubstr("pairs")));
  for (const int64_t head_dim : {64, 80, 128, 256}) {
    EXPECT_THAT(variant(chunk(60, 60, 128, 12000, head_dim), device), testing::HasSubstr("pairs"));
  }
  EXPECT_THAT(variant(chunk(512, 128, 16, 4096), device),
              testing::AllOf(testing::StartsWith("sm90_forward_parts 64x64"),
                             testing::HasSubstr("2 parts, merged in pairs, packed heads")));
}

// Blocks of 64 queries are the fastest in one wave, and slower than predicted in several.
TEST(Sm90ForwardParts, HaveBlocksOf64QueriesInOneWave) {
  const DeviceInfo device = hopper();
  for (const int64_t head_dim : {64, 96, 128}) {
    const Problem few = chunk(8, 1, 32, 8192, head_dim);
    EXPECT_EQ(kSm90ForwardParts.choose(few, device).q, 64) << few.id();
    const Problem many = chunk(64, 16, 777, 16384, head_dim, Mask::none);
    EXPECT_NE(kSm90ForwardParts.choose(many, device).q, 64) << many.id();
  }
}

// At head_dim 64 blocks of 192 queries are the fastest behind many keys, in parts. Behind fewer
// keys the second launch costs more than they gain.
TEST(Sm90ForwardParts, HaveBlocksOf192QueriesBehindManyKeys) {
  const DeviceInfo device = hopper();
  for (const Problem& p : {chunk(32, 8, 512, 65536, 64), chunk(12, 12, 384, 32768, 64)}) {
    ASSERT_EQ(kSm90ForwardParts.why_unsupported(p, device), std::nullopt) << p.id();
    EXPECT_EQ(kSm90ForwardParts.choose(p, device).q, 192) << p.id();
  }
  EXPECT_NE(kSm90ForwardParts.why_unsupported(chunk(32, 8, 512, 8192, 64), device), std::nullopt);
}

// 128 whole tiles fill 132 multiprocessors. Parts of the same rows would make two waves of them.
TEST(Sm90ForwardParts, HaveOtherRowsWhereWholeTilesFillTheGpu) {
  const DeviceInfo device = hopper();
  const Problem p = chunk(8, 8, 2048, 8192, 96);
  const BlockSizes whole = kSm90Forward.choose(p, device);
  ASSERT_EQ(8 * 2048 / whole.q, 128);
  ASSERT_EQ(kSm90ForwardParts.why_unsupported(p, device), std::nullopt);
  EXPECT_NE(kSm90ForwardParts.choose(p, device).q, whole.q);
}

TEST(Sm90ForwardParts, ReportsItsSchedule) {
  const DeviceInfo device = hopper();
  const Problem p = chunk(16, 16, 128, 16384);
  const Launch at{p, device, kSm90ForwardParts.choose(p, device)};
  const Schedule schedule = kSm90ForwardParts.schedule(at).value();
  EXPECT_GT(schedule.splits, 1);
  EXPECT_EQ(schedule.workers, 16 * (128 / at.blocks.q) * schedule.splits);
  EXPECT_EQ(schedule.partial_bytes, schedule.splits * 16 * 128 * (128 + 1) * 4);
  EXPECT_GE(kSm90ForwardParts.workspace_bytes(at), static_cast<size_t>(schedule.partial_bytes));
}

// All queries of a chunk see about as many keys, so that all tiles take as long. A short last wave
// leaves most of the GPU idle for as long as a full one takes.
TEST(Sm90ForwardParts, FillTheLastWave) {
  const DeviceInfo device = hopper();
  for (const Problem& p :
       {chunk(20, 20, 361, 17280, 64), chunk(28, 4, 150, 30000), chunk(10, 10, 256, 16384)}) {
    const Launch at{p, device, kSm90ForwardParts.choose(p, device)};
    ASSERT_GE(at.blocks.q, 128) << p.id();  // one thread block to a multiprocessor
    const double waves =
        static_cast<double>(kSm90ForwardParts.schedule(at)->workers) / device.threads;
    EXPECT_GE(waves / std::ceil(waves), 0.8) << p.id() << ": " << kSm90ForwardParts.variant(at);
  }
}

struct Sample {
  Problem problem;
  BlockSizes blocks;
  CudaKernel<Arguments> kernel;
};
template <Config kConfig>
Sample sample(const Problem& problem) {
  using Kernel = Forward<__nv_bfloat16, kConfig, RandomDelay>;
  return {problem,
          {.q = kConfig.block_q,
           .kv = kConfig.block_kv,
           .warps = Kernel::kThreads / 32,
           .stages = kConfig.stages,
           .overlaps = kConfig.overlaps},
          {"sm90_forward_parts", forward_kernel<Kernel>, Kernel::kThreads,
           sizeof(typename Kernel::Shared)}};
}

// For requests of different lengths, and pages; and for equal lengths without.
constexpr Config any_in_parts(int head_dim, int block_q, int block_kv, int stages) {
  return with_overlap(with_parts(configuration(head_dim, block_q, block_kv, stages, true)));
}
constexpr Config in_parts(int head_dim, int block_q, int block_kv, int stages) {
  return without_look_up(any_in_parts(head_dim, block_q, block_kv, stages));
}

std::vector<Sample> samples() {
  const std::vector<RequestLengths> requests{{70, 5000}, {0, 5}, {3, 0}, {100, 3000}, {129, 64}};
  constexpr auto kBottom = Mask::causal_bottom_right;
  const std::vector<RequestLengths> long_requests{
      {70, 5000}, {0, 5}, {3, 0}, {100, 4000}, {129, 4000}};
  return {
      sample<in_parts(64, 64, 64, 4)>(chunk(6, 2, 33, 3000, 64)),
      sample<in_parts(64, 128, 128, 3)>(chunk(2, 2, 150, 3001, 64, Mask::none)),
      sample<without_look_up(with_parts(configuration(64, 192, 96, 5, true)))>(
          chunk(7, 1, 60, 2500, 64)),
      sample<in_parts(128, 64, 64, 2)>(chunk(7, 1, 20, 2000)),
      sample<any_in_parts(128, 64, 64, 2)>(in_pages(chunk(7, 1, 20, 2000), 16)),
      sample<in_parts(128, 128, 96, 3)>(chunk(5, 1, 16, 3000)),  // boxes of 16 rows
      sample<in_parts(128, 192, 64, 4)>(chunk(7, 1, 32, 2500)),  // of 32
      sample<in_parts(128, 128, 96, 3)>(chunk(2, 1, 300, 4000)),
      sample<any_in_parts(128, 192, 64, 4)>(
          problem_of_requests(Dtype::bf16, kBottom, Layout::ragged, 1, requests, 128)),
      sample<in_parts(256, 128, 64, 2)>(chunk(4, 1, 40, 3000, 256)),
      sample<in_parts(256, 128, 64, 2)>(chunk(4, 1, 20, 9000, 248)),
      sample<in_parts(64, 128, 128, 3)>(chunk(9, 9, 100, 3000, 40)),
      sample<with_pairs(in_parts(128, 128, 96, 3))>(chunk(60, 20, 100, 3000, 120)),
      sample<with_pairs(any_in_parts(128, 128, 96, 3))>(in_pages(chunk(60, 20, 100, 3001), 48)),
      sample<with_pairs(any_in_parts(128, 128, 96, 3))>(
          problem_of_requests(Dtype::bf16, kBottom, Layout::bshd, 4, long_requests, 128)),
      sample<with_pairs(in_parts(128, 192, 64, 4))>(chunk(120, 60, 90, 2500)),
      sample<with_pairs(in_parts(96, 128, 128, 3))>(chunk(60, 60, 100, 2300, 96)),
      sample<with_pairs(in_parts(64, 128, 128, 3))>(chunk(60, 60, 100, 9000, 64, Mask::none)),
      sample<with_pairs(in_parts(256, 128, 64, 2))>(chunk(30, 30, 200, 2200, 256)),
      sample<with_pairs(in_parts(64, 64, 64, 4))>(chunk(380, 190, 16, 2100, 64)),
      sample<with_pairs(in_parts(96, 64, 64, 3))>(chunk(100, 100, 60, 2100, 96, Mask::none)),
      sample<with_pairs(in_parts(128, 64, 64, 2))>(chunk(300, 100, 9, 2100)),
      sample<with_pairs(any_in_parts(128, 64, 64, 2))>(in_pages(chunk(200, 100, 20, 2101), 16))};
}

// Else there would be little to delay.
TEST(Sm90ForwardParts, HasPartsInTheProblemsWithDelays) {
  const DeviceInfo device = hopper();
  int in_pairs = 0;
  std::set<int> groups;
  for (const Sample& one : samples()) {
    const Problem& p = one.problem;
    EXPECT_EQ(kSm90ForwardParts.why_unsupported(p, device), std::nullopt) << p.id();
    const Schedule schedule = kSm90ForwardParts.schedule({p, device, one.blocks}).value();
    EXPECT_GT(schedule.splits, 1) << p.id();
    if (schedule.partial_bytes == 0) {
      ++in_pairs;
    } else {
      groups.insert(MergeThreads(p.head_dim, schedule.splits).groups);
    }
  }
  EXPECT_EQ(in_pairs, 11);
  EXPECT_THAT(groups, testing::ElementsAre(1, 2, 4, kMostMergeGroups));
}

class CudaSm90PartsDelays : public testing::TestWithParam<int> {};

TEST_P(CudaSm90PartsDelays, ChangeNoBit) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const Sample one_of = samples()[static_cast<size_t>(GetParam())];
  const Problem& p = one_of.problem;
  if (const auto why = kSm90ForwardParts.why_unsupported(p, device->info())) GTEST_SKIP() << *why;

  CudaProblem one(*device, kSm90ForwardParts, p, one_of.blocks);
  std::optional<CapturedLaunch<MergeArguments>> merge;
  if (kSm90ForwardParts.schedule({p, device->info(), one_of.blocks})->partial_bytes > 0) {
    merge = captured_launch<MergeArguments>([&] { one.launch(); },
                                            static_cast<cudaStream_t>(device->stream().cuda));
  }
  const auto launch_merge = [&] {
    if (!merge) return;
    const MergeThreads threads(p.head_dim, merge->arguments.parts);
    launch_kernel(merge_kernel(p.dtype, threads), merge->grid.x, merge->arguments,
                  device->stream());
  };
  const auto check = [&] {
    HostOutputs host = one.outputs().to_host();
    const Oracle oracle(p, one.host_inputs(), Dtype::fp32, {}, *device);
    const Verdict verdict = oracle.judge(host.view());
    EXPECT_TRUE(verdict.passed()) << verdict.reason;
  };
  expect_no_bit_changes(*device, p, one, one_of.kernel, Which::first, launch_merge, check);
}

INSTANTIATE_TEST_SUITE_P(, CudaSm90PartsDelays,
                         testing::Range(0, static_cast<int>(samples().size())),
                         [](const auto& info) {
                           return test_name(samples()[static_cast<size_t>(info.param)].problem);
                         });

}  // namespace
}  // namespace sm90
}  // namespace flashbench::kernels
