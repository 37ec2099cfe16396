// The block sizes that Hopper's forward kernel chooses.
#include "kernels/sm90/forward_blocks.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/attention.h"
#include "tests/kernels/hopper.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Forward;

namespace sm90 {
namespace {

Problem problem(int64_t batch, int64_t heads, int64_t length, int64_t head_dim, Mask mask) {
  Problem p;
  p.pass = Pass::forward;
  p.dtype = Dtype::bf16;
  p.mask = mask;
  p.batch = batch;
  p.q_heads = p.kv_heads = heads;
  p.q_len = p.kv_len = length;
  p.head_dim = head_dim;
  return p;
}

BlockSizes chosen(const Problem& p) {
  return kSm90Forward.choose(p, hopper());
}

constexpr Mask kBothMasks[] = {Mask::none, Mask::causal_bottom_right};

TEST(ForwardBlocks, LargeProblemsFillAMultiprocessorWithOneThreadBlock) {
  for (const Mask mask : kBothMasks) {
    for (const int64_t head_dim : {64, 96, 128}) {
      for (const int64_t length : {2048, 8192, 1 << 20}) {
        const Problem p = problem(4, 32, length, head_dim, mask);
        EXPECT_EQ(chosen(p).q, 192) << p.id();
      }
    }
  }
}

// 176 blocks of 192 queries are a wave and one of pieces of a GPU with 132 multiprocessors, and 256
// of 128 are two waves.
TEST(ForwardBlocks, ProblemsOfFewBlocksHaveSmallerOnes) {
  for (const int64_t head_dim : {64, 72, 128}) {
    EXPECT_EQ(chosen(problem(1, 16, 2048, head_dim, Mask::none)).q, 128) << head_dim;
    EXPECT_EQ(chosen(problem(1, 12, 2048, head_dim, Mask::none)).q, 192) << head_dim;
    EXPECT_EQ(chosen(problem(1, 4, 8192, head_dim, Mask::causal_bottom_right)).q, 128) << head_dim;
  }
}

// Blocks of 64 keys waste less on the diagonal than those of 128.
TEST(ForwardBlocks, CausalProblemsOfAFewWavesHaveFinerKeys) {
  const auto kv = [](int64_t length) {
    return chosen(problem(4, 16, length, 64, Mask::causal_bottom_right)).kv;
  };
  EXPECT_EQ(kv(1024), 64);
  EXPECT_EQ(kv(4096), 128);
}

// 8 blocks of 80 hold 577 keys as 10 of 64 do, and fewer blocks cost less.
TEST(ForwardBlocks, KeysInBlocksOf80WhereTheyAreFewer) {
  const auto kv = [](int64_t length) { return chosen(problem(9, 28, length, 128, Mask::none)).kv; };
  EXPECT_EQ(kv(577), 80);
  EXPECT_EQ(kv(512), 64);
}

// A later tile's inputs are loaded ahead, so large blocks cost little to begin where each thread
// block has several.
TEST(ForwardBlocks, ManyShortHeadsOfOneBlockEach) {
  EXPECT_EQ(chosen(problem(16, 32, 128, 128, Mask::none)).q, 128);
  EXPECT_EQ(chosen(problem(1, 32, 128, 128, Mask::none)).q, 64);
}

TEST(ForwardBlocks, AFewShortHeadsAreSpreadOverMoreMultiprocessors) {
  for (const int64_t head_dim : {72, 80}) {
    EXPECT_EQ(chosen(problem(1, 16, 256, head_dim, Mask::none)).q, 64) << head_dim;
    EXPECT_EQ(chosen(problem(8, 16, 256, head_dim, Mask::none)).q, 128) << head_dim;
  }
}

TEST(ForwardBlocks, ShortProblemsShareMultiprocessors) {
  for (const Mask mask : kBothMasks) {
    for (const int64_t head_dim : {64, 80, 128}) {
      for (const int64_t batch : {1, 8, 32}) {
        for (const int64_t length : {1, 16, 64, 77}) {
          const Problem p = problem(batch, 12, length, head_dim, mask);
          EXPECT_EQ(chosen(p).q, 64) << p.id();
        }
      }
    }
  }
}

TEST(ForwardBlocks, OfACausalMaskLackRowsWhereFewKeysAreSeen) {
  const Problem causal = problem(1, 1, 1024, 128, Mask::causal_bottom_right);
  EXPECT_EQ(missing_rows(causal, {.q = 192, .kv = 64}, 1024), 6 * 192 - 1024);
  EXPECT_EQ(missing_rows(causal, {.q = 128, .kv = 64}, 1024), 0);
  EXPECT_EQ(missing_rows(problem(1, 1, 1024, 128, Mask::none), {.q = 192, .kv = 64}, 1024), 0);
}

// TMA stores no part of a box that begins before the tensor.
TEST(ForwardBlocks, LackWholeWarpsAtTheFront) {
  for (int64_t length = 1; length < 400; ++length) {
    const Problem causal = problem(1, 1, length, 128, Mask::causal_top_left);
    const int64_t missing = missing_rows(causal, {.q = 192, .kv = 64}, length);
    EXPECT_EQ(missing % 16, 0);
    EXPECT_GE(missing, 0);
    const int64_t behind = (length + 191) / 192 * 192 - length - missing;
    EXPECT_TRUE(0 <= behind && behind < 16) << length;
  }
}

// Before a request's first row are rows of another one, so that a consumer has none, or all.
TEST(ForwardBlocks, OfRequestsAndWindowsLackWholeConsumersAtTheFront) {
  Problem windowed = problem(2, 1, 1000, 128, Mask::causal_bottom_right);
  windowed.window_left = 10;
  Problem ragged = problem(2, 1, 1000, 128, Mask::causal_bottom_right);
  ragged.set_lengths(
      std::make_shared<const Lengths>(std::vector<RequestLengths>{{1000, 1000}, {3, 5}}));
  for (const Problem& p : {windowed, ragged}) {
    EXPECT_EQ(missing_rows(p, {.q = 192, .kv = 64}, 1000), 128);  // of 152
    EXPECT_EQ(missing_rows(p, {.q = 192, .kv = 64}, 3), 128);
    EXPECT_EQ(missing_rows(p, {.q = 192, .kv = 64}, 130), 0);
    EXPECT_EQ(missing_rows(p, {.q = 64, .kv = 64}, 1000), 0);
  }
}

TEST(ForwardBlocks, OneBlockOfKeysHoldsTextOf77Tokens) {
  EXPECT_EQ(chosen(problem(32, 12, 77, 64, Mask::causal_bottom_right)).kv, 80);
  EXPECT_EQ(chosen(problem(32, 12, 64, 64, Mask::causal_bottom_right)).kv, 64);
}

TEST(ForwardBlocks, LargeHeadsHaveNoShortBlocks) {
  for (const int64_t head_dim : {192, 256}) {
    EXPECT_EQ(chosen(problem(1, 12, 77, head_dim, Mask::none)).q, 128);
  }
}

}  // namespace
}  // namespace sm90
}  // namespace flashbench::kernels
