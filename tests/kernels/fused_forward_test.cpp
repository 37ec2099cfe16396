// The sections of heads of the fused forward kernels.
#include "kernels/common/fused_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <vector>

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

// By the cache alone, an H100 (50 MiB) would have four sections of 7 heads and a last one of 4.
TEST(SectionHeads, OfACausalMaskLeaveNoShortLastSection) {
  DeviceInfo h100 = gpu();
  h100.last_level_cache_bytes = int64_t{50} << 20;
  Problem p = problem(Mask::causal_bottom_right, 4096, 32);
  p.head_dim = 256;
  EXPECT_EQ(section_heads(p, kBlocks, h100), 8);  // 256 blocks
  for (const int64_t length : {1500, 4096, 8192, 16384}) {
    for (int64_t heads = 1; heads <= 128; ++heads) {
      const int64_t section =
          section_heads(problem(Mask::causal_bottom_right, length, heads), kBlocks, h100);
      const int64_t last = heads - (heads - 1) / section * section;
      const int64_t blocks_per_head = (length + 127) / 128;
      EXPECT_TRUE(last == section || 2 * (last + 1) * blocks_per_head > 4 * 132)
          << heads << " heads of " << length;
    }
  }
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
    const int64_t bytes = fused_forward_requested_bytes(launch, [&](int64_t q_len) {
      EXPECT_EQ(q_len, 300);
      return missing_rows;
    });
    return (bytes - 300 * 4) / (2 * 2 * 128) - 300;  // without logsumexp, Q and O
  };
  EXPECT_EQ(keys(0), 128 + 256 + 300);
  EXPECT_EQ(keys(80), 48 + 176 + 300);
}

// When thread blocks that take one tile after the other have done all, in key blocks; each tile
// costs one more. Tiles are as long as their order by length says, in that of `order`.
double end_of_launch(int64_t q_blocks, int64_t heads, int64_t at_once, const ItemOrder& order) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free(
      {}, std::vector<double>(static_cast<size_t>(at_once)));
  double end = 0;
  for (int index = 0; index < q_blocks * heads; ++index) {
    const int64_t key_blocks = q_blocks - order.item(index) / heads;
    const double done = free.top() + 1 + static_cast<double>(key_blocks);
    free.pop();
    free.push(done);
    end = std::max(end, done);
  }
  return end;
}

ItemOrder order_of(int64_t q_blocks, int64_t heads, Mask mask = Mask::causal_bottom_right) {
  const Problem p = problem(mask, q_blocks * 128, heads);
  return tile_order(p, q_blocks * heads, heads, 132);
}

// Than in the order of lengths. That happens to be the best for some numbers of tiles in between.
TEST(TileOrder, EndsSoonerWithTwoOrThreeTilesForEachThreadBlock) {
  double gains = 0;
  int count = 0;
  for (const int64_t q_blocks : {11, 22, 43, 86}) {
    for (int64_t heads = 2; heads <= 48; ++heads) {
      const double each = static_cast<double>(q_blocks * heads) / 132;
      if (!has_own_order(each)) continue;
      const double gain = end_of_launch(q_blocks, heads, 132, {}) /
                          end_of_launch(q_blocks, heads, 132, order_of(q_blocks, heads));
      EXPECT_GT(gain, 0.94) << q_blocks << " blocks of " << heads << " heads";
      gains += gain;
      ++count;
    }
  }
  EXPECT_GT(gains / count, 1.03);
}

TEST(TileOrder, HasEveryTileOnce) {
  for (int64_t heads = 1; heads <= 64; ++heads) {
    const ItemOrder order = order_of(22, heads);
    std::set<int> items;
    for (int index = 0; index < 22 * heads; ++index) items.insert(order.item(index));
    EXPECT_EQ(items.size(), static_cast<size_t>(22 * heads));
    EXPECT_EQ(*items.rbegin(), 22 * heads - 1);
  }
}

TEST(TileOrder, IsThatOfLengthsWhereItIsTheBest) {
  const auto is_plain = [](const ItemOrder& order) {
    return order.held_back == 0 || order.ahead == 0;
  };
  EXPECT_FALSE(is_plain(order_of(22, 16)));
  EXPECT_TRUE(is_plain(order_of(22, 16, Mask::none)));  // all are alike
  EXPECT_TRUE(is_plain(order_of(22, 12)));              // two for each thread block
  EXPECT_TRUE(is_plain(order_of(22, 24)));              // four
  const Problem p = problem(Mask::causal_bottom_right, 22 * 128, 16);
  EXPECT_TRUE(is_plain(tile_order(p, 22 * 16, 8, 132)));  // two sections
  Problem prefill = p;
  prefill.kv_len *= 4;  // tiles are about alike
  EXPECT_TRUE(is_plain(tile_order(prefill, 22 * 16, 16, 132)));
}

}  // namespace
}  // namespace flashbench::kernels
