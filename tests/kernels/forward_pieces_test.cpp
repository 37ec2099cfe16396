// Which tiles of Hopper's forward kernels are split into pieces, and what these take.
#include "kernels/sm90/forward_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "tests/kernels/hopper.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Forward, kSm90ForwardParts, kSm90E4m3;

namespace sm90 {
namespace {

constexpr BlockSizes kBlocks{.q = 192, .kv = 64, .warps = 16, .stages = 4};

Problem unmasked(int64_t batch, int64_t heads, int64_t length, int64_t head_dim = 128) {
  Problem p;
  p.dtype = Dtype::bf16;
  p.batch = batch;
  p.q_heads = p.kv_heads = heads;
  p.q_len = p.kv_len = length;
  p.head_dim = head_dim;
  return p;
}

std::string variant(const Problem& p, const BlockSizes& blocks = kBlocks) {
  return kSm90Forward.variant({p, hopper(), blocks});
}

TEST(ForwardPieces, AreOfTheTilesOfTheLastWave) {
  using testing::EndsWith;
  // 1,376 tiles are 56 more than ten waves, and two pieces each are less than one.
  EXPECT_THAT(variant(unmasked(1, 16, 16384)), EndsWith(", 56 tiles in 2 pieces"));
  EXPECT_THAT(variant(unmasked(2, 16, 4037)), EndsWith(", 44 tiles in 3 pieces"));
  EXPECT_THAT(variant(unmasked(1, 140, 190)), EndsWith("stages"));  // too few keys
  Problem few_rows = unmasked(1, 140, 4096);
  few_rows.q_len = 190;
  EXPECT_THAT(variant(few_rows), EndsWith(", 8 tiles in 4 pieces"));
}

TEST(ForwardPieces, AreOfLargeTiles) {
  Problem p = unmasked(1, 3 * 132 + 10, 4096, 64);
  p.q_len = 64;
  const BlockSizes blocks{.q = 64, .kv = 64, .warps = 8, .stages = 2};
  EXPECT_THAT(variant(p, blocks), testing::EndsWith("stages"));
}

TEST(ForwardPieces, AreOfTilesThatAreAlikeAndFillAGpu) {
  const auto whole = kSm90Forward.workspace_bytes;
  const size_t none = whole({unmasked(1, 1, 1), hopper(), kBlocks});
  const auto expect_whole = [&](const Launch& at) {
    EXPECT_THAT(kSm90Forward.variant(at), testing::Not(testing::HasSubstr("pieces")));
    EXPECT_EQ(kSm90Forward.workspace_bytes(at), none);
  };
  const DeviceInfo device = hopper();
  const Problem alike = unmasked(1, 16, 16384);
  EXPECT_GT(kSm90Forward.workspace_bytes({alike, device, kBlocks}), none);

  Problem causal = alike, windowed = alike, paged = alike, ragged = alike, few = alike;
  causal.mask = Mask::causal_bottom_right;
  windowed.window_left = 5000;
  paged.page_size = 64;
  ragged.set_lengths(
      std::make_shared<const Lengths>(std::vector<RequestLengths>{{16384, 16384}, {16384, 16384}}));
  few.q_heads = few.kv_heads = 1;
  for (const Problem& p : {causal, windowed, paged, ragged, few}) {
    SCOPED_TRACE(p.id());
    expect_whole({p, device, kBlocks});
  }
  Launch to_fp32_o{alike, device, kBlocks};
  to_fp32_o.fp32_outputs.of_queries = true;
  expect_whole(to_fp32_o);
}

// The choice of blocks knows what the last wave takes: these are 704 tiles of 192 queries, 5.3
// waves, or 1,024 of 128, 7.8 waves.
TEST(ForwardPieces, MakeLargeBlocksWorthIt) {
  Problem p = unmasked(2, 16, 4037);
  p.kv_heads = 8;
  EXPECT_NE(kSm90ForwardParts.why_unsupported(p, hopper()), std::nullopt);
  EXPECT_EQ(kSm90Forward.choose(p, hopper()).q, 192);
}

TEST(ForwardPieces, OfE4m3AreOfFewTilesToo) {
  Problem p = unmasked(1, 8, 512);
  p.dtype = Dtype::e4m3;
  p.kv_len = 32768;
  const BlockSizes blocks{.q = 192, .kv = 128, .warps = 16, .stages = 4};
  EXPECT_THAT(kSm90E4m3.variant({p, hopper(), blocks}),
              testing::EndsWith(", 24 tiles in 4 pieces"));
  p.mask = Mask::causal_bottom_right;
  EXPECT_THAT(kSm90E4m3.variant({p, hopper(), blocks}),
              testing::EndsWith(", 24 tiles in 4 pieces"));
  p.q_heads = p.kv_heads = 100;
  EXPECT_THAT(kSm90E4m3.variant({p, hopper(), blocks}), testing::EndsWith("stages"));
}

TEST(ForwardPieces, HaveSumsAndCountersInTheWorkspace) {
  const SplitTiles split = split_tiles(132 + 12, 132, 8192, kBlocks, 128);
  ASSERT_EQ(split.last.items, 12);
  ASSERT_EQ(split.last.pieces, 4);
  EXPECT_EQ(split.items(132 + 12), 132 + 4 * 12);

  std::vector<std::byte> workspace(split.workspace_bytes());
  const Pieces pieces = split.arguments(132 + 12, workspace.data());
  EXPECT_EQ(pieces.whole_tiles, 132);
  EXPECT_EQ(pieces.split_tiles, 12);
  EXPECT_EQ(pieces.each, 4);
  // Of each piece: 192 rows of 128 columns, with a maximum and a sum for each of four threads, and
  // 12 warps.
  EXPECT_EQ(pieces.sums + 4 * 12 * 192 * (128 + 8), reinterpret_cast<float*>(pieces.arrivals));
  EXPECT_EQ(reinterpret_cast<std::byte*>(pieces.arrivals + 4 * 12 * 12),
            workspace.data() + workspace.size());
}

TEST(ForwardPieces, ThatThereAreNotTakeNothing) {
  const SplitTiles split = split_tiles(132, 132, 8192, kBlocks, 128);
  EXPECT_EQ(split.items(132), 132);
  EXPECT_EQ(split.workspace_bytes(), 0);
  EXPECT_EQ(split.describe(), "");
  EXPECT_EQ(split.arguments(132, nullptr).whole_tiles, 132);
}

}  // namespace
}  // namespace sm90
}  // namespace flashbench::kernels
