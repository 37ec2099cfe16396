// What Hopper's decoding kernel takes, and how it splits keys among thread blocks.
#include "kernels/sm90/decode_splits.h"

#include <gtest/gtest.h>

#include "tests/kernels/hopper.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Decode;

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
