#include "kernels/cpu/forward_work.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>

namespace flashbench::kernels {
namespace {

Problem batch_of(const std::vector<RequestLengths>& lengths) {
  Problem p;
  p.mask = Mask::causal_bottom_right;
  p.layout = Layout::ragged;
  p.q_heads = 8;
  p.kv_heads = 4;
  p.head_dim = 64;
  p.set_lengths(std::make_shared<Lengths>(lengths));
  return p;
}

Problem decoding(int64_t batch, int64_t kv_len, Layout layout = Layout::bshd) {
  Problem p;
  p.layout = layout;
  p.batch = batch;
  p.q_heads = p.kv_heads = 8;
  p.q_len = 1;
  p.kv_len = kv_len;
  p.head_dim = 64;
  return p;
}

TEST(ForwardWork, IsTilesForManyQueriesAndChunksForFew) {
  const ForwardWork work(batch_of({{kFewQueries, 100}, {kFewQueries + 1, 100}, {0, 9}}), 2);
  ASSERT_EQ(work.tiles().size(), 8);
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(work.tiles()[i].batch, 1);
  ASSERT_EQ(work.merges().size(), 8);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(work.merges()[i].batch, 0);
    EXPECT_EQ(work.merges()[i].rows, kFewQueries);
  }
  EXPECT_EQ(work.results(), 4);
  EXPECT_EQ(work.most_rows(), 2 * kFewQueries);
}

// Each K/V head of a request has its results behind each other, one for each chunk of its keys.
TEST(ForwardWork, ChunksCoverTheKeysOfEachHead) {
  for (const int threads : {1, 2, 64}) {
    const Problem p = batch_of({{1, 1}, {4, kChunkKeys}, {40, 7}, {2, 3 * kChunkKeys + 1}, {1, 0}});
    const ForwardWork work(p, threads);
    std::map<int64_t, std::pair<int64_t, int64_t>> head_of;  // of each result
    std::map<std::pair<int64_t, int64_t>, int64_t> end;      // of the keys of each head, so far
    for (int64_t i = 0; i < work.chunks(); ++i) {
      const KeyChunk chunk = work.chunk(i);
      EXPECT_LE(chunk.keys.size(), kChunkKeys);
      for (int64_t h = 0; h < chunk.heads; ++h) {
        const std::pair<int64_t, int64_t> head{chunk.batch, chunk.first_head + h};
        EXPECT_EQ(chunk.keys.first, end[head]);
        end[head] = chunk.keys.end;
        EXPECT_TRUE(head_of.emplace(chunk.first_result + h * chunk.results_per_head, head).second);
      }
    }
    EXPECT_EQ(end.size(), 3u * 4u);
    for (const auto& [head, keys] : end) EXPECT_EQ(keys, p.kv_len_of(head.first));
    EXPECT_EQ(static_cast<int64_t>(head_of.size()), work.results());
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t h = 0; h < p.kv_heads; ++h) {
        const RowRange results = work.results_of(b, h);
        for (int64_t i = results.first; i < results.end; ++i) {
          EXPECT_EQ(head_of.at(i), (std::pair{b, h}));
        }
      }
    }
  }
}

TEST(ForwardWork, ChunksHaveOnlyKeysThatAQuerySees) {
  Problem p = decoding(1, 5000);
  p.q_len = 3;
  p.mask = Mask::causal_bottom_right;
  p.window_left = 99;
  const ForwardWork work(p, 1);
  ASSERT_GT(work.chunks(), 0);
  for (int64_t i = 0; i < work.chunks(); ++i) {
    EXPECT_EQ(work.chunk(i).keys.first, 5000 - 3 - 99);
    EXPECT_EQ(work.chunk(i).keys.end, 5000);
  }
}

// How many chunks have all heads. They come first, and each thread can have as many of them; the
// others have one head.
int64_t whole_chunks(const ForwardWork& work) {
  int64_t whole = 0;
  for (int64_t i = 0; i < work.chunks(); ++i) {
    if (work.chunk(i).heads == 1) continue;
    EXPECT_EQ(work.chunk(i).heads, work.most_heads());
    EXPECT_EQ(whole++, i);
  }
  return whole;
}

TEST(ForwardWork, WholeChunksLeaveSingleHeadsForTheEnd) {
  EXPECT_EQ(whole_chunks(ForwardWork(decoding(8, 4096), 1)), 64);
  EXPECT_EQ(whole_chunks(ForwardWork(decoding(8, 4096), 2)), 62);
  EXPECT_EQ(whole_chunks(ForwardWork(decoding(8, 4096), 16)), 48);
  EXPECT_EQ(whole_chunks(ForwardWork(decoding(1, 2048), 2)), 2);
}

TEST(ForwardWork, HeadsAreSingleWhereChunksAreFewOrHeadsLieApart) {
  for (const ForwardWork& work :
       {ForwardWork(decoding(1, 2048), 64), ForwardWork(decoding(8, 4096, Layout::bhsd), 2)}) {
    EXPECT_EQ(whole_chunks(work), 0);
    EXPECT_EQ(work.chunks(), work.results());
    EXPECT_EQ(work.most_heads(), 1);
  }
}

}  // namespace
}  // namespace flashbench::kernels
