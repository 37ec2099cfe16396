// The sections of heads of the fused forward kernels.
#include "kernels/common/fused_forward.h"

#include <gtest/gtest.h>

namespace flashbench::kernels {
namespace {

DeviceInfo gpu() {
  DeviceInfo info;
  info.threads = 132;
  info.last_level_cache_bytes = int64_t{60} << 20;
  return info;
}

constexpr BlockSizes kBlocks{.q = 128, .kv = 64, .warps = 12, .stages = 2};

Problem problem(Mask mask, int64_t length, int64_t heads, int64_t group = 1) {
  Problem p;
  p.dtype = Dtype::bf16;
  p.mask = mask;
  p.q_heads = heads * group;
  p.kv_heads = heads;
  p.q_len = p.kv_len = length;
  p.head_dim = 128;  // K and V of a head: 512 bytes per key
  return p;
}

TEST(SectionHeads, WithoutAMaskTakeASixteenthOfTheCache) {
  EXPECT_EQ(section_heads(problem(Mask::none, 1024, 64), kBlocks, gpu()), 8);  // of 7.5 at best
}

TEST(SectionHeads, OfACausalMaskHaveTwoAndAHalfBlocksAMultiprocessor) {
  // 41 heads of 8 blocks would do; 256 heads are 6 times as many.
  EXPECT_EQ(section_heads(problem(Mask::causal_bottom_right, 1024, 256), kBlocks, gpu()), 43);
}

TEST(SectionHeads, OfACausalMaskTakeUpToHalfOfTheCache) {
  EXPECT_EQ(section_heads(problem(Mask::causal_top_left, 16384, 16), kBlocks, gpu()),
            4);  // of 2.6 by blocks
}

TEST(SectionHeads, AreEven) {
  for (int64_t heads = 1; heads <= 300; ++heads) {
    const int64_t section =
        section_heads(problem(Mask::causal_bottom_right, 2048, heads), kBlocks, gpu());
    const int64_t sections = (heads + section - 1) / section;
    // The last section lacks fewer heads than would remain if every section had one head less.
    EXPECT_LT(section * sections - heads, sections) << heads;
  }
}

TEST(SectionHeads, AreOneAtLeastAndAllAtMost) {
  EXPECT_EQ(section_heads(problem(Mask::none, 1 << 20, 3), kBlocks, gpu()), 1);
  EXPECT_EQ(section_heads(problem(Mask::causal_bottom_right, 1 << 20, 3), kBlocks, gpu()), 1);
  EXPECT_EQ(section_heads(problem(Mask::none, 16, 3), kBlocks, gpu()), 3);
  EXPECT_EQ(section_heads(problem(Mask::causal_bottom_right, 16, 3), kBlocks, gpu()), 3);
}

TEST(SectionHeads, AreOfWholeGroups) {
  EXPECT_EQ(section_heads(problem(Mask::none, 1024, 64, 4), kBlocks, gpu()), 32);
}

TEST(FusedForward, RequestsFewerKeysIfTheFirstBlockOfACausalMaskLacksRows) {
  const Problem p = problem(Mask::causal_bottom_right, 300, 1);
  const DeviceInfo device = gpu();
  const Launch launch{p, device, kBlocks};  // 128 queries
  const auto keys = [&](int64_t missing_rows) {
    const int64_t bytes = fused_forward_requested_bytes(launch, missing_rows);
    return (bytes - 300 * 4) / (2 * 2 * 128) - 300;  // without logsumexp, Q and O
  };
  EXPECT_EQ(keys(0), 128 + 256 + 300);
  EXPECT_EQ(keys(80), 48 + 176 + 300);
}

}  // namespace
}  // namespace flashbench::kernels
