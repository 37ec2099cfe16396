// What Hopper's decoding kernel takes, and how it splits keys among thread blocks.
#include "kernels/sm90/decode_splits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/kernels/hopper.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Decode, kSm90DecodeBatchInvariant, kSm90ForwardParts;

namespace sm90 {
namespace {

Problem decoding(int64_t batch, int64_t group, int64_t kv_heads, int64_t kv_len,
                 int64_t head_dim = 128) {
  Problem p;
  p.dtype = Dtype::bf16;
  p.batch = batch;
  p.q_heads = group * kv_heads;
  p.kv_heads = kv_heads;
  p.q_len = 1;
  p.kv_len = kv_len;
  p.head_dim = head_dim;
  return p;
}

Splits chosen(const Problem& p, const DeviceInfo& device = hopper()) {
  return choose_splits(p, device, kSm90Decode.choose(p, device));
}

TEST(DecodeSplits, ManyUnitsAreNotSplit) {
  for (const int64_t kv_len : {1, 1024, 4096}) {
    EXPECT_EQ(chosen(decoding(16, 4, 8, kv_len)), (Splits{1, 1})) << kv_len;
    EXPECT_EQ(chosen(decoding(64, 4, 8, kv_len)), (Splits{1, 1})) << kv_len;
  }
}

TEST(DecodeSplits, AClusterSharesTheKeysOfAFewUnits) {
  for (const int64_t kv_len : {1024, 4096}) {
    EXPECT_EQ(chosen(decoding(1, 4, 8, kv_len)), (Splits{1, 8})) << kv_len;
  }
}

// Half of the multiprocessors do not quite reach the rate of memory. That matters where many bytes
// are read; where few are, merging in memory takes longer.
TEST(DecodeSplits, ManyBytesAreReadByAllMultiprocessors) {
  EXPECT_EQ(chosen(decoding(4, 4, 8, 32768)).count(), 4);
  EXPECT_EQ(chosen(decoding(16, 16, 2, 32768)).count(), 4);
  EXPECT_EQ(chosen(decoding(16, 8, 4, 32768)), (Splits{1, 2}));
  EXPECT_EQ(chosen(decoding(4, 4, 8, 4096)), (Splits{1, 2}));
}

// More bytes in flight than memory needs slow it down; few bytes are read sooner by more warps.
TEST(DecodeSplits, ManyBytesAreReadByFewWarps) {
  const auto warps = [](const Problem& p) { return kSm90Decode.choose(p, hopper()).warps; };
  EXPECT_EQ(warps(decoding(16, 4, 8, 32768)), 4);
  EXPECT_EQ(warps(decoding(4, 4, 8, 32768)), 4);
  EXPECT_EQ(warps(decoding(16, 4, 8, 1024)), 8);
  EXPECT_EQ(warps(decoding(4, 4, 8, 4096)), 8);
}

TEST(DecodeSplits, SeveralClustersShareThoseOfASingleUnit) {
  EXPECT_GT(chosen(decoding(1, 16, 1, 32768)).clusters, 2);
}

// A unit of a second wave would have the GPU to itself.
TEST(DecodeSplits, AFewUnitsTooManyAreSplitAsWell) {
  EXPECT_GT(chosen(decoding(265, 1, 1, 32768)).count(), 1);
}

TEST(DecodeSplits, EveryWarpHasATile) {
  for (int64_t kv_len = 0; kv_len < 3000; kv_len += 7) {
    const Problem p = decoding(1, 4, 1, kv_len);
    const BlockSizes blocks = kSm90Decode.choose(p, hopper());
    const int splits = choose_splits(p, hopper(), blocks).count();
    EXPECT_GE(splits, 1);
    EXPECT_LE((splits - 1) * blocks.kv, kv_len);
  }
}

// Only the keys that the mask leaves count.
TEST(DecodeSplits, HiddenKeysNeedNoThreadBlocks) {
  Problem p = decoding(1, 4, 1, 32768);
  p.mask = Mask::causal_top_left;
  EXPECT_EQ(chosen(p), (Splits{1, 1}));
}

TEST(DecodeSplits, TheWorkspaceHoldsThePartsOfSeveralClusters) {
  const DeviceInfo device = hopper();
  for (const int64_t kv_heads : {1, 2, 8, 64}) {
    const Problem p = decoding(1, 4, kv_heads, 32768);
    const Launch at{p, device, kSm90Decode.choose(p, device)};
    const Splits splits = chosen(p);
    const int64_t bytes = kv_heads * splits.clusters * 16 * 128 * 4;
    EXPECT_EQ(kSm90Decode.workspace_bytes(at) > 0, splits.clusters > 1);
    if (splits.clusters > 1) {
      EXPECT_GT(kSm90Decode.workspace_bytes(at), bytes);
    }
  }
}

// `p` with requests of these lengths, of p.q_len queries each.
Problem with_keys(Problem p, const std::vector<int64_t>& keys) {
  std::vector<RequestLengths> lengths;
  for (const int64_t count : keys) lengths.push_back({p.q_len, count});
  p.set_lengths(std::make_shared<Lengths>(lengths));
  return p;
}

PortionPlan planned(const Problem& p) {
  return plan_portions(p, hopper(), kSm90Decode.choose(p, hopper()));
}

// As a captured graph, which runs whatever the lengths are then.
TEST(DecodePortions, FollowFromTheLongestLengthsAlone) {
  const Problem p = decoding(1, 4, 8, 1);
  const Problem skewed = with_keys(p, {65536, 1, 1, 0}), even = with_keys(p, {65536, 65536, 9, 9});
  const DeviceInfo device = hopper();
  EXPECT_EQ(planned(skewed), planned(even));
  for (const AttentionKernel* kernel : {&kSm90Decode, &kSm90DecodeBatchInvariant}) {
    const BlockSizes blocks = kernel->choose(skewed, device);
    EXPECT_EQ(kernel->choose(even, device), blocks);
    EXPECT_EQ(kernel->workspace_bytes({skewed, device, blocks}),
              kernel->workspace_bytes({even, device, blocks}));
  }
}

TEST(DecodePortions, GiveEveryMultiprocessorAThreadBlock) {
  for (const int64_t kv_heads : {1, 2, 3, 8, 40, 131, 132}) {
    const PortionPlan plan = planned(with_keys(decoding(1, 1, kv_heads, 1), {100000, 9, 9}));
    EXPECT_LE(plan.portions * plan.thread_blocks, 132) << kv_heads;
    EXPECT_GT((plan.portions + 1) * plan.thread_blocks, 132) << kv_heads;
  }
  // More heads than multiprocessors run in several waves, the last of which is short.
  const PortionPlan plan = planned(with_keys(decoding(1, 1, 200, 1), {100000, 100000}));
  EXPECT_GE(plan.portions * plan.thread_blocks, 4 * 132);
}

TEST(DecodePortions, AreNoMoreThanTheTilesThatTheLengthsCanHave) {
  EXPECT_EQ(planned(with_keys(decoding(1, 1, 1, 1), {300, 0})).portions, 2);
}

TEST(DecodePortions, ArePlannedForRequestsWithoutQueriesOrKeys) {
  Problem p = decoding(1, 4, 8, 1);
  EXPECT_EQ(planned(with_keys(p, {0, 0})).portions, 1);
  p.q_len = 0;
  EXPECT_EQ(planned(with_keys(p, {0, 0})).thread_blocks, 1);
}

// One tile is the least that a portion has.
TEST(DecodePortions, OfTheRequestsAreCounted) {
  const Problem p = decoding(1, 4, 2, 1);
  const BlockSizes blocks = kSm90Decode.choose(with_keys(p, {1, 2}), hopper());
  const Problem nine_tiles = with_keys(p, {blocks.kv * 5, 0, 1, blocks.kv + 1});
  PortionPlan plan;
  plan.portions = 1000;
  PortionAccount account = account_of_portions(nine_tiles, blocks, plan);
  EXPECT_EQ(account.parts_in_memory, 5 + 2);
  EXPECT_EQ(account.most_parts, 5);
  EXPECT_EQ(account.portions, 9);
  EXPECT_EQ(account.imbalance, 1);
  plan.portions = 2;  // of five tiles
  account = account_of_portions(nine_tiles, blocks, plan);
  EXPECT_EQ(account.parts_in_memory, 0);
  EXPECT_EQ(account.portions, 2);
  EXPECT_DOUBLE_EQ(account.imbalance, 5 / 4.5);
  const Problem others = with_keys(p, {blocks.kv * 6, 0, 1, 1});
  EXPECT_EQ(account_of_portions(others, blocks, plan).parts_in_memory, 2);
}

TEST(DecodePortions, BeginAnewWithEachRequestWhereBitsAreThoseOfTheRequest) {
  const Problem p = with_keys(decoding(1, 4, 2, 1), {1024, 1025, 1, 3000});
  const BlockSizes blocks = kSm90DecodeBatchInvariant.choose(p, hopper());
  const PortionPlan plan = plan_batch_invariant_portions(p, hopper(), blocks);
  EXPECT_EQ(plan.tiles * blocks.kv, kBatchInvariantKeys);
  EXPECT_EQ(account_of_portions(p, blocks, plan).parts_in_memory, 2 + 3);
  EXPECT_EQ(plan.most_portions, 4 * 3);
}

TEST(DecodePortions, OfManyRequestsHaveFewerWarps) {
  const Problem p = decoding(1, 4, 8, 1);
  EXPECT_EQ(kSm90Decode.choose(with_keys(p, std::vector<int64_t>(63, 512)), hopper()).warps, 8);
  EXPECT_EQ(kSm90Decode.choose(with_keys(p, std::vector<int64_t>(64, 512)), hopper()).warps, 4);
}

// One number of rows, whatever the longest request of the batch.
TEST(DecodeKernel, TakesTheSameBlocksForARequestInEveryBatch) {
  Problem few = decoding(1, 16, 1, 1000), many = few;
  many.q_len = 4;
  EXPECT_EQ(kSm90DecodeBatchInvariant.choose(few, hopper()),
            kSm90DecodeBatchInvariant.choose(many, hopper()));
}

TEST(DecodeKernel, TakesLengthsPagesWindowsAndHeadDimV) {
  for (const AttentionKernel* kernel : {&kSm90Decode, &kSm90DecodeBatchInvariant}) {
    EXPECT_TRUE(kernel->knows_lengths && kernel->knows_pages && kernel->knows_windows &&
                kernel->knows_head_dim_v);
    Problem p = with_keys(decoding(1, 4, 8, 1, 192), {5, 0});
    p.set_value_dim(128);
    p.page_size = 16;
    p.window_left = 3;
    EXPECT_EQ(kernel->why_unsupported(p, hopper()), std::nullopt);
    EXPECT_EQ(kernel->choose(p, hopper()).q, 16);
  }
}

// In tiles of as many bytes; of head_dims in between, the next that is compiled.
TEST(DecodeKernel, TakesCachesOfBytes) {
  for (const AttentionKernel* kernel : {&kSm90Decode, &kSm90DecodeBatchInvariant}) {
    for (const int64_t head_dim : {16, 64, 96, 128, 160, 192, 256}) {
      for (const bool lengths : {false, true}) {
        Problem p = decoding(1, 4, 8, 1000, head_dim);
        if (lengths) p = with_keys(p, {1000, 0, 3});
        const Problem halves = p;
        p.kv_dtype = Dtype::e4m3;
        ASSERT_EQ(kernel->why_unsupported(p, hopper()), std::nullopt);
        const BlockSizes blocks = kernel->choose(p, hopper());
        EXPECT_GE(blocks.kv * blocks.stages, 64) << head_dim;
        EXPECT_LT(kernel->requested_bytes({p, hopper(), blocks}),
                  kernel->requested_bytes({halves, hopper(), kernel->choose(halves, hopper())}));
      }
    }
    Problem p = decoding(1, 4, 8, 1000, 72);
    p.kv_dtype = Dtype::e4m3;
    EXPECT_EQ(kernel->why_unsupported(p, hopper()), "rows of e4m3 must be multiples of 16 bytes");
  }
}

bool takes(Problem p, int64_t q_len) {
  p.q_len = q_len;
  return !kSm90Decode.why_unsupported(p, hopper());
}

TEST(DecodeKernel, TakesUpTo64PackedRowsOf16Queries) {
  EXPECT_TRUE(takes(decoding(1, 4, 8, 1000), 16));
  EXPECT_FALSE(takes(decoding(1, 4, 8, 1000), 17));
  EXPECT_TRUE(takes(decoding(1, 8, 8, 1000), 8));
  EXPECT_FALSE(takes(decoding(1, 8, 8, 1000), 9));
  EXPECT_TRUE(takes(decoding(1, 64, 1, 1000), 1));
  EXPECT_FALSE(takes(decoding(1, 65, 1, 1000), 1));
}

// One block of rows holds 32 at head_dim 128 and 16 at head_dim 256.
TEST(DecodeKernel, LeavesToTilesOfOneHeadWhatTheyReadLessOften) {
  EXPECT_TRUE(takes(decoding(1, 3, 1, 1000, 256), 16));
  EXPECT_FALSE(takes(decoding(1, 2, 1, 1000, 256), 25));
  EXPECT_TRUE(takes(decoding(1, 1, 1, 1000, 256), 16));
}

// More than 32 rows read K and V twice here, which costs more than a second launch.
TEST(DecodeKernel, LeavesToTilesInPartsWhatTheyPack) {
  const auto causal = [](int64_t batch, int64_t kv_len, int64_t head_dim, int64_t q_len) {
    Problem p = decoding(batch, 4, 8, kv_len, head_dim);
    p.mask = Mask::causal_bottom_right;
    p.q_len = q_len;
    return p;
  };
  for (const int64_t head_dim : {64, 96, 128}) {
    EXPECT_TRUE(takes(causal(1, 32768, head_dim, 8), 8)) << head_dim;
    const Problem p = causal(1, 32768, head_dim, 9);
    EXPECT_FALSE(takes(p, 9)) << head_dim;
    EXPECT_FALSE(kSm90ForwardParts.why_unsupported(p, hopper())) << head_dim;
    EXPECT_FALSE(kSm90DecodeBatchInvariant.why_unsupported(p, hopper())) << head_dim;
  }
  EXPECT_TRUE(takes(causal(1, 1000, 128, 16), 16));
  EXPECT_TRUE(takes(causal(1, 32768, 256, 16), 16));   // whose tiles in parts have 128 rows
  EXPECT_TRUE(takes(causal(64, 32768, 128, 16), 16));  // whose tiles fill the GPU without parts
}

TEST(DecodeKernel, TakesTheFewestRowsThatHoldAUnit) {
  const DeviceInfo device = hopper();
  EXPECT_EQ(kSm90Decode.choose(decoding(1, 16, 1, 1000), device).q, 16);
  EXPECT_EQ(kSm90Decode.choose(decoding(1, 17, 1, 1000), device).q, 32);
  EXPECT_EQ(kSm90Decode.choose(decoding(1, 64, 1, 1000), device).q, 32);
  EXPECT_EQ(kSm90Decode.choose(decoding(1, 64, 1, 1000, 256), device).q, 16);
}

}  // namespace
}  // namespace sm90
}  // namespace flashbench::kernels
