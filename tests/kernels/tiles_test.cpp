#include "kernels/cpu/tiles.h"

#include <gtest/gtest.h>

#include "tests/kernels/run_kernel.h"

namespace flashbench::kernels {
namespace {

Problem square(Pass pass, int64_t length, int64_t head_dim) {
  Problem p;
  p.pass = pass;
  p.q_heads = p.kv_heads = 4;
  p.q_len = p.kv_len = length;
  p.head_dim = head_dim;
  return p;
}

TEST(Tiles, AreWholeStepsThatScratchCanHold) {
  for (const Pass pass : kPasses) {
    for (int64_t head_dim = kHeadDimStep; head_dim <= kMaxHeadDim; head_dim += kHeadDimStep) {
      for (const int64_t length : {1, 31, 32, 33, 1000, 100000}) {
        for (const int threads : {1, 2, 64}) {
          const Tile tile = choose_tile(square(pass, length, head_dim), threads);
          EXPECT_GE(tile.queries, kTileStep);
          EXPECT_GE(tile.keys, kTileStep);
          EXPECT_EQ(tile.queries % kTileStep, 0);
          EXPECT_EQ(tile.keys % kTileStep, 0);
          EXPECT_LE(tile.keys, static_cast<int64_t>(kMaxColumns));
        }
      }
    }
  }
}

TEST(Tiles, ShrinkToShareLittleWork) {
  EXPECT_EQ(choose_tile(square(Pass::forward, 4096, 64), 2).queries, 512);
  EXPECT_LT(choose_tile(square(Pass::forward, 256, 64), 8).queries, 256);
  EXPECT_EQ(choose_tile(square(Pass::backward, 4096, 64), 2).keys, 256);
  EXPECT_LT(choose_tile(square(Pass::backward, 256, 64), 8).keys, 256);
}

// At twice the length, the scratch is the same, and the workspace (dQ and the row statistics) at
// most doubles.
TEST(Tiles, WorkspaceDoesNotGrowWithTheSquareOfTheLength) {
  const DeviceInfo device = host_with_threads(2);
  for (const Pass pass : kPasses) {
    for (const AttentionKernel* kernel : cpu_kernels(pass)) {
      const Problem shorter = square(pass, 4096, 64), longer = square(pass, 8192, 64);
      const size_t once = kernel->workspace_bytes({shorter, device});
      const size_t twice = kernel->workspace_bytes({longer, device});
      EXPECT_LE(twice, 2 * once) << kernel->name;
      if (pass == Pass::forward) {
        EXPECT_EQ(twice, once) << kernel->name;
      }
    }
  }
}

// Hand-counted: 2 heads of 4 query tiles of 512 forward, 8 key tiles of 256 backward, at length
// 2048, head_dim 64, fp32, one thread.
TEST(Tiles, RequestedBytesCountTheTilesVisited) {
  const DeviceInfo device = host_with_threads(1);
  Problem p = square(Pass::forward, 2048, 64);
  p.q_heads = p.kv_heads = 2;
  const int64_t row = 64 * 4;
  const auto requested = [&] { return cpu_kernels(p.pass).at(0)->requested_bytes({p, device}); };

  const int64_t q_o_l = 2 * 2048 * (2 * row + 4);
  EXPECT_EQ(requested(), q_o_l + 2 * (4 * 2048) * 2 * row);
  p.mask = Mask::causal_top_left;  // the tiles see 512, 1024, 1536 and 2048 keys
  EXPECT_EQ(requested(), q_o_l + 2 * (512 + 1024 + 1536 + 2048) * 2 * row);

  p.pass = Pass::backward;
  p.mask = Mask::none;
  const int64_t keys = 2 * 2048 * 4 * row;                  // K, V, dK, dV
  const int64_t statistics = 2 * 2048 * (2 * row + 4 + 8);  // O, dO, L; D and L written
  const int64_t dq = 2 * 2048 * 3 * row;                    // zeroed, read, written
  const int64_t visit = 4 * row + 8;                        // Q, dO; dQ read and written; D and L
  EXPECT_EQ(requested(), keys + statistics + dq + 2 * (8 * 2048) * visit);
  p.mask = Mask::causal_top_left;  // key tile i is seen by 2048 - 256 i rows
  EXPECT_EQ(requested(), keys + statistics + dq + 2 * (8 * 2048 - 256 * 28) * visit);
}

}  // namespace
}  // namespace flashbench::kernels
