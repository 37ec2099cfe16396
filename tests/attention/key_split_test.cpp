#include "attention/key_split.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace flashbench {
namespace {

Problem problem_of(Mask mask, int64_t q_len, int64_t kv_len, int64_t heads, int64_t gpus) {
  Problem p{.mask = mask, .q_heads = heads, .q_len = q_len, .kv_len = kv_len};
  p.gpus = gpus;
  p.split = Split::keys;
  return p;
}

// What a rank's part of the problem sees is what the whole sees of the rank's keys.
TEST(KeySplit, EachPairOfAQueryAndAKeyIsInOnePart) {
  for (const Mask mask : kMasks) {
    for (const int64_t ranks : {2, 3, 4, 7, 64}) {
      for (const int64_t q_len : {1, 2, 5, 16, 33}) {
        for (const int64_t kv_len : {1, 2, 5, 15, 16, 17, 64, 200}) {
          const Problem whole = problem_of(mask, q_len, kv_len, 4, ranks);
          const KeySplit split = KeySplit::of(whole);
          SCOPED_TRACE(whole.id() + " ranks " + std::to_string(ranks));
          int64_t next = 0;
          for (int rank = 0; rank < ranks; ++rank) {
            const RowRange keys = split.keys(rank);
            EXPECT_EQ(keys.first, next);
            EXPECT_GE(keys.size(), 0);
            next = keys.end;
            const Problem part = split.part(rank);
            EXPECT_FALSE(part.gpus);
            for (int64_t query = 0; query < q_len; ++query) {
              const RowRange all = whole.visible_keys(query);
              const int64_t first = std::clamp(all.first, keys.first, keys.end);
              const int64_t seen = std::clamp(all.end, first, keys.end) - first;
              if (part.kv_len == 0) {
                EXPECT_EQ(seen, 0);
                continue;
              }
              const RowRange own = part.visible_keys(query);
              EXPECT_EQ(own.size(), seen);
              if (seen > 0) {
                EXPECT_EQ(own.first + keys.first, first);
              }
            }
          }
          EXPECT_EQ(next, kv_len);
        }
      }
    }
  }
}

TEST(KeySplit, PartsAreAsLongAsTheDiagonalAllows) {
  const KeySplit all = KeySplit::of(problem_of(Mask::none, 1, 103, 1, 4));
  for (int rank = 0; rank < 4; ++rank) EXPECT_NEAR(double(all.keys(rank).size()), 103 / 4.0, 1);
  const KeySplit causal = KeySplit::of(problem_of(Mask::causal_bottom_right, 16, 32, 1, 4));
  EXPECT_EQ(causal.keys(2), (RowRange{16, 16}));
  EXPECT_EQ(causal.keys(3), (RowRange{16, 32}));
}

TEST(KeySplit, EachHeadHasOneOwner) {
  for (const int64_t ranks : {2, 3, 4, 7, 64}) {
    for (const int64_t heads : {1, 2, 5, 8, 71}) {
      const KeySplit split = KeySplit::of(problem_of(Mask::none, 1, 8, heads, ranks));
      int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(split.heads(rank).first, next);
        next = split.heads(rank).end;
      }
      EXPECT_EQ(next, heads);
    }
  }
}

}  // namespace
}  // namespace flashbench
