// The block sizes that Hopper's forward kernel chooses.
#include "kernels/sm90/forward_blocks.h"

#include <gtest/gtest.h>

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

TEST(ForwardBlocks, LongProblemsFillAMultiprocessorWithOneThreadBlock) {
  for (const Mask mask : kBothMasks) {
    for (const int64_t head_dim : {64, 96, 128}) {
      for (const int64_t length : {2048, 8192, 1 << 20}) {
        const Problem p = problem(4, 32, length, head_dim, mask);
        EXPECT_EQ(chosen(p).q, 192) << p.id();
      }
    }
  }
}

TEST(ForwardBlocks, ShortProblemsShareMultiprocessors) {
  for (const Mask mask : kBothMasks) {
    for (const int64_t head_dim : {64, 80, 128}) {
      for (const int64_t batch : {1, 8, 32}) {
        for (const int64_t length : {1, 16, 77, 128, 197}) {
          const Problem p = problem(batch, 12, length, head_dim, mask);
          EXPECT_EQ(chosen(p).q, 64) << p.id();
        }
      }
    }
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
