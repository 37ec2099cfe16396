// Properties of the descriptors of our GPU kernels that can be checked without a GPU, and the
// resources that the compiled kernels use on one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda.h"
#include "kernels/attention.h"
#include "kernels/common/blocks.h"

namespace flashbench::kernels {
namespace {

DeviceInfo gpu(int compute_capability) {
  DeviceInfo info;
  info.kind = DeviceKind::cuda;
  info.compute_capability = compute_capability;
  info.threads = 108;
  info.last_level_cache_bytes = int64_t{40} << 20;
  info.shared_memory_bytes = (compute_capability == 90   ? 227
                              : compute_capability == 80 ? 163
                                                         : 99)
                             << 10;
  return info;
}

Problem problem(Pass pass, Dtype dtype, Mask mask, int64_t head_dim) {
  Problem p;
  p.pass = pass;
  p.dtype = dtype;
  p.mask = mask;
  p.q_heads = p.kv_heads = 2;
  p.q_len = p.kv_len = 300;
  p.head_dim = head_dim;
  return p;
}

class EveryGpu : public testing::TestWithParam<int> {};

TEST_P(EveryGpu, RunsEveryProblemWithBlocksThatFit) {
  const DeviceInfo device = gpu(GetParam());
  for (const AttentionKernel* kernel : cuda_kernels()) {
    EXPECT_NE(kernel->facts, nullptr) << kernel->name;
    int supported = 0;
    for (const Dtype dtype : kDtypes) {
      if (dtype == Dtype::e4m3 && !kernel->knows_e4m3) continue;
      for (const Mask mask : kMasks) {
        for (int64_t head_dim = kHeadDimStep; head_dim <= kMaxHeadDim; head_dim += kHeadDimStep) {
          Problem p = problem(kernel->pass, dtype, mask, head_dim);
          if (kernel->family.starts_with("sm90_decode")) p.q_len = 3;
          SCOPED_TRACE(std::string(kernel->name) + " " + p.id());
          if (kernel->why_unsupported(p, device)) continue;
          ++supported;
          Launch at{p, device};
          if (kernel->choose != nullptr) at.blocks = kernel->choose(p, device);
          if (kernel->candidates != nullptr) {
            EXPECT_THAT(kernel->candidates(p, device), testing::Contains(at.blocks));
          }
          EXPECT_TRUE(kernel->variant(at).starts_with(kernel->name)) << kernel->variant(at);
          if (mask == Mask::none) {
            EXPECT_GE(kernel->requested_bytes(at), p.compulsory_bytes());
          }
        }
      }
    }
    EXPECT_EQ(supported > 0, !kernel->family.starts_with("sm90") || GetParam() == 90)
        << kernel->name;
  }
}

TEST_P(EveryGpu, RefusesMoreHeadsAndRowsThanAGridHasThreadBlocks) {
  for (const AttentionKernel* kernel : cuda_kernels()) {
    if (!kernel->family.starts_with("sm")) continue;
    Problem p = problem(kernel->pass, Dtype::bf16, Mask::none, 64);
    p.batch = int64_t{1} << 20;
    p.q_heads = p.kv_heads = int64_t{1} << 10;
    EXPECT_NE(kernel->why_unsupported(p, gpu(GetParam())), std::nullopt) << kernel->name;
  }
}

// A captured launch is replayed with other lengths, of which the host knows the number of requests,
// the longest and the totals.
TEST_P(EveryGpu, ChoosesNothingFromSingleLengths) {
  using Requests = std::vector<RequestLengths>;
  const DeviceInfo device = gpu(GetParam());
  for (const AttentionKernel* kernel : cuda_kernels()) {
    if (!kernel->knows_lengths) continue;
    for (const Layout layout : {Layout::ragged, Layout::bshd}) {
      for (const Mask mask : kMasks) {
        Problem one = problem(kernel->pass, Dtype::bf16, mask, 128), other = one;
        one.layout = other.layout = layout;
        one.set_lengths(std::make_shared<const Lengths>(Requests{{900, 900}, {500, 500}, {1, 1}}));
        other.set_lengths(
            std::make_shared<const Lengths>(Requests{{0, 201}, {501, 900}, {900, 300}}));
        SCOPED_TRACE(std::string(kernel->name) + " " + one.id());
        if (kernel->why_unsupported(one, device)) continue;
        const BlockSizes blocks = kernel->choose(one, device);
        EXPECT_EQ(kernel->choose(other, device), blocks);
        const Launch at_one{one, device, blocks}, at_other{other, device, blocks};
        EXPECT_EQ(kernel->variant(at_one), kernel->variant(at_other));
        EXPECT_EQ(kernel->workspace_bytes(at_one), kernel->workspace_bytes(at_other));
        if (mask == Mask::none) {
          EXPECT_GE(kernel->requested_bytes(at_one), one.compulsory_bytes());
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryGpu, testing::Values(80, 86, 89, 90),
                         testing::PrintToStringParamName());

TEST(CudaKernelFacts, FitAMultiprocessor) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const auto device = make_cuda_device(0);
  for (const AttentionKernel* kernel : cuda_kernels()) {
    for (const Dtype dtype : kDtypes) {
      if (dtype == Dtype::e4m3 && !kernel->knows_e4m3) continue;
      for (const int64_t head_dim : {32, 64, 80, 96, 128, 192, 256}) {
        Problem p = problem(kernel->pass, dtype, Mask::none, head_dim);
        if (kernel->family.starts_with("sm90_decode")) p.q_len = 3;
        if (kernel->why_unsupported(p, device->info())) continue;
        Launch at{p, device->info()};
        if (kernel->choose != nullptr) at.blocks = kernel->choose(p, device->info());
        const std::vector<KernelFacts> facts = kernel->facts(at);
        // Hopper's backward pass uses sm80's first and last kernels.
        EXPECT_TRUE(std::ranges::any_of(facts, [&](const KernelFacts& fact) {
          return fact.name.starts_with(kernel->family.substr(0, 3));
        })) << kernel->name;
        for (const KernelFacts& fact : facts) {
          SCOPED_TRACE(p.id() + " " + std::string(fact.name));
          EXPECT_GE(fact.threads, 32);
          EXPECT_GE(fact.registers, 16);
          EXPECT_GE(fact.local_bytes, 0);
          EXPECT_GE(fact.blocks_per_multiprocessor, 1);
          EXPECT_LE(fact.blocks_per_multiprocessor * fact.threads * fact.registers, 65536);
          EXPECT_LE(fact.static_shared_bytes + fact.dynamic_shared_bytes,
                    device->info().shared_memory_bytes);
        }
      }
    }
  }
}

// A row whose blocks are no candidate would be ignored silently.
TEST(TunedBlocks, AreOnesThatTheirKernelHas) {
  constexpr TunedBlocks kRows[] = {
#include "kernels/tuned_blocks.inc"
  };
  for (const TunedBlocks& row : kRows) {
    const DeviceInfo device = gpu(row.compute_capability);
    Problem p = problem(row.pass, Dtype::bf16, row.causal ? Mask::causal_top_left : Mask::none,
                        row.head_dim);
    p.q_len = p.kv_len = 8192;  // large: small problems have other blocks
    p.batch = 64;
    SCOPED_TRACE(std::string(row.family) + " " + std::to_string(row.compute_capability) + " " +
                 p.id());
    bool found = false;
    for (const AttentionKernel* kernel : cuda_kernels()) {
      if (kernel->family != row.family || kernel->pass != row.pass) continue;
      found = true;
      EXPECT_EQ(kernel->choose(p, device), row.blocks);
    }
    EXPECT_TRUE(found);
  }
}

}  // namespace
}  // namespace flashbench::kernels
