// What a block of queries of the backward pass for Hopper knows of its mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/sm90/backward_arguments.cuh"

namespace flashbench::kernels::sm90 {
namespace {

constexpr int kBlockQ = 64, kBlockKv = 128, kNoMask = 1 << 30;
using Work = backward::Work<kBlockQ, kBlockKv>;
using Block = BackwardBlock<kBlockQ, kBlockKv>;

// Query i sees keys 0 to i + diagonal.
struct Lengths {
  int q_len, kv_len, diagonal;

  bool exists(int query, int key) const { return query < q_len && key < kv_len; }
  bool sees(int query, int key) const { return exists(query, key) && key <= query + diagonal; }
};

BackwardArguments arguments(const Lengths& of) {
  BackwardArguments a{};
  a.batch = a.kv_heads = a.group = a.parts = 1;
  a.q_len = of.q_len;
  a.key_end = std::min<int64_t>(of.kv_len, int64_t{of.q_len} + of.diagonal);
  a.diagonal = of.diagonal;
  a.key_blocks = (of.kv_len + kBlockKv - 1) / kBlockKv;
  return a;
}

void expect_masks(const Lengths& of) {
  const BackwardArguments a = arguments(of);
  for (int index = 0; index < a.key_blocks; ++index) {
    const Work work(a, index);
    for (int number = work.first_block; number < work.end_block; ++number) {
      const Block block(a, work, number * kBlockQ, 0);
      bool masked = false, hides = false;
      for (int i = 0; i < kBlockQ; ++i) {
        for (int j = 0; j < kBlockKv; ++j) {
          const int query = block.first_query + i, key = work.first_key + j;
          masked |= !of.sees(query, key);
          hides |= of.exists(query, key) && !of.sees(query, key);
        }
      }
      const std::string where = std::to_string(of.q_len) + " x " + std::to_string(of.kv_len) +
                                ", " + std::to_string(of.diagonal) + ": " + std::to_string(number) +
                                ", " + std::to_string(index);
      EXPECT_EQ(block.masked, masked) << where;
      EXPECT_EQ(block.is_partial, block.first_query + kBlockQ > of.q_len) << where;
      if (hides) EXPECT_TRUE(block.hides) << where;
      // Else dV of keys that exist would be stored with the P of keys that no query sees.
      const int keys = std::min(of.kv_len, work.first_key + kBlockKv);
      if (a.key_end < keys) EXPECT_TRUE(block.hides) << where;
      const bool is_whole =
          of.exists(block.first_query + kBlockQ - 1, work.first_key + kBlockKv - 1);
      if (is_whole || of.diagonal == kNoMask) EXPECT_EQ(block.hides, hides) << where;
    }
  }
}

TEST(Sm90BackwardBlock, KnowsWhatItMasks) {
  for (const int q_len : {1, 64, 100, 129, 300}) {
    for (const int kv_len : {1, 64, 128, 200, 301}) {
      expect_masks({q_len, kv_len, kNoMask});
      expect_masks({q_len, kv_len, 0});                                    // top left
      if (kv_len >= q_len) expect_masks({q_len, kv_len, kv_len - q_len});  // bottom right
    }
  }
}

}  // namespace
}  // namespace flashbench::kernels::sm90
