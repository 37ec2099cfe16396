#include "attention/token_split.h"

#include <gtest/gtest.h>

#include <vector>

namespace flashbench {
namespace {

// Every token is in one chunk, and every chunk is one rank's.
TEST(TokenSplit, EachTokenHasOneOwner) {
  for (const Split split : kSplits) {
    for (const int ranks : {2, 3, 4, 7, 64}) {
      for (const int64_t tokens : {1, 2, 5, 13, 64, 127, 128, 1000}) {
        const TokenSplit t{split, tokens, ranks};
        int64_t next = 0;
        for (int chunk = 0; chunk < t.chunks(); ++chunk) {
          EXPECT_EQ(t.chunk(chunk).first, next);
          EXPECT_LE(t.chunk(chunk).size(), t.chunk_length());
          next = t.chunk(chunk).end;
        }
        EXPECT_EQ(next, tokens);
        std::vector<int> owners(static_cast<size_t>(t.chunks()), -1);
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_LT(t.chunks_of(rank)[0], t.chunks_of(rank)[1]);
          for (const int chunk : t.chunks_of(rank)) {
            EXPECT_EQ(owners[static_cast<size_t>(chunk)], -1);
            owners[static_cast<size_t>(chunk)] = rank;
            EXPECT_EQ(t.owner(chunk), rank);
          }
        }
      }
    }
  }
}

// Pairs of a query and a key that it sees, of each rank.
std::vector<int64_t> causal_work(const TokenSplit& t) {
  std::vector<int64_t> work;
  for (int rank = 0; rank < t.ranks; ++rank) {
    int64_t pairs = 0;
    for (const int chunk : t.chunks_of(rank)) {
      for (int64_t query = t.chunk(chunk).first; query < t.chunk(chunk).end; ++query) {
        pairs += query + 1;
      }
    }
    work.push_back(pairs);
  }
  return work;
}

TEST(TokenSplit, AZigzagBalancesACausalMask) {
  const std::vector<int64_t> zigzag = causal_work({Split::zigzag, 1024, 4});
  for (const int64_t pairs : zigzag) EXPECT_EQ(pairs, zigzag.front());
  const std::vector<int64_t> contiguous = causal_work({Split::contiguous, 1024, 4});
  EXPECT_GT(contiguous.back(), 6 * contiguous.front());
}

}  // namespace
}  // namespace flashbench
