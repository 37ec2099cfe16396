// The list of the backward pass's work without a mask. Every block of queries meets every block of
// keys of its request once, in a whole item or in one of its pieces, and each piece has room of its
// own for its sums.
#include "kernels/backward/list_work.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "device/cuda.h"
#include "kernels/backward/work.cuh"
#include "kernels/common/requests.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/row_starts.h"

namespace flashbench::kernels::sm90 {
namespace {

constexpr int kBlockQ = 64, kBlockKv = 80;
using ListedWork = backward::RequestWork<kBlockQ, kBlockKv>;

struct Batch {
  std::vector<int> q_lens, kv_lens;
  int kv_heads, heads_of_section, at_once;
};

std::vector<ListedWork> listed(const Batch& batch, int group) {
  const OnGpu<int> cu_q(starts(batch.q_lens)), cu_k(starts(batch.kv_lens));
  const auto requests = static_cast<int>(batch.q_lens.size());
  const int rows = starts(batch.kv_lens).back();
  BackwardArguments a{};
  a.batch = 1;
  a.kv_heads = batch.kv_heads;
  a.group = group;
  a.q_heads = batch.kv_heads * group;
  a.parts = 1;
  a.key_blocks = static_cast<int>(block_slots(rows, requests, kBlockKv));
  a.sections = {batch.heads_of_section, (batch.kv_heads - 1) / batch.heads_of_section};
  a.at_once = batch.at_once;
  a.work_items = a.kv_heads * a.key_blocks + a.at_once;
  a.requests.queries = {cu_q.data(), *std::ranges::max_element(batch.q_lens)};
  a.requests.keys = {cu_k.data(), *std::ranges::max_element(batch.kv_lens)};
  a.requests.count = requests;
  a.requests.packed = true;
  a.requests.left = a.requests.right = rows + starts(batch.q_lens).back();
  ListedWork unlisted;
  unlisted.exists = -1;
  const OnGpu<ListedWork> list(static_cast<size_t>(a.work_items), unlisted);
  const OnGpu<unsigned> arrivals(
      static_cast<size_t>(backward::kMostPiecesAtOnce * a.at_once * backward::kMostPieceWarps), 7);
  a.work_list = list.data();
  a.piece_arrivals = arrivals.data();
  constexpr int kWarps = backward::kListingThreads / 32;
  run(backward::backward_list_work<ListedWork, BackwardArguments>,
      (a.work_items + kWarps - 1) / kWarps, backward::kListingThreads, 0, a);
  EXPECT_TRUE(std::ranges::all_of(arrivals.to_host(), [](unsigned count) { return count == 0; }));
  return list.to_host();
}

// How many items have pieces.
int expect_every_block_once(const Batch& batch, int group) {
  std::map<std::tuple<int, int, int, int>, int> visits;  // by request's row, head, block, first key
  std::map<int, int> rooms;                              // by number: how many pieces use it
  int items_in_pieces = 0;
  for (const ListedWork& work : listed(batch, group)) {
    EXPECT_GE(work.exists, 0) << "not listed";
    if (work.exists != 1) continue;
    const auto [count, first_piece] = work.pieces[0];
    EXPECT_GE(count, 1);
    if (count > 1) {
      EXPECT_LT(work.part, count);
      EXPECT_GE(work.steps, backward::kLeastPieceSteps);
      ++rooms[first_piece + work.part];
      items_in_pieces += work.part == 0;
    }
    backward::Step step(work);
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      ++visits[{work.first_k, step.head, step.block, work.first_key}];
    }
  }
  for (const auto& [room, pieces] : rooms) {
    EXPECT_LT(room, backward::kMostPiecesAtOnce * batch.at_once);
    EXPECT_EQ(pieces, 1) << "of room " << room;
  }
  size_t expected = 0;
  const std::vector<int> first_k = starts(batch.kv_lens);
  for (size_t i = 0; i < batch.q_lens.size(); ++i) {
    for (int head = 0; head < batch.kv_heads * group; ++head) {
      for (int block = 0; block * kBlockQ < batch.q_lens[i]; ++block) {
        for (int key = 0; key < batch.kv_lens[i]; key += kBlockKv, ++expected) {
          const auto found = visits.find({first_k[i], head, block, key});
          if (found == visits.end() || found->second != 1) {
            ADD_FAILURE() << "request " << i << ", head " << head << ", block " << block << ", key "
                          << key;
            return items_in_pieces;
          }
        }
      }
    }
  }
  EXPECT_EQ(visits.size(), expected);
  return items_in_pieces;
}

TEST(CudaSm90BackwardList, HasEveryBlockOnce) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  std::mt19937 random(1);
  int in_pieces = 0;
  for (const int requests : {1, 2, 9, 32, 33, 100}) {
    for (const int kv_heads : {1, 2, 5}) {
      for (const int heads_of_section : {1, 2, 5}) {
        for (const int at_once : {1, 66, 132}) {
          if (heads_of_section > kv_heads) continue;
          Batch batch{{}, {}, kv_heads, heads_of_section, at_once};
          const bool equal = random() % 4 == 0;
          for (int i = 0; i < requests; ++i) {
            const int kinds[] = {0, 1, kBlockKv, static_cast<int>(random() % 2000)};
            batch.q_lens.push_back(equal ? 1500 : static_cast<int>(random() % 2000));
            batch.kv_lens.push_back(equal ? 300 : kinds[random() % 4]);
          }
          SCOPED_TRACE(std::to_string(requests) + " requests, " + std::to_string(kv_heads) +
                       " heads, sections of " + std::to_string(heads_of_section) + ", " +
                       std::to_string(at_once) + " at once");
          in_pieces += expect_every_block_once(batch, 2);
        }
      }
    }
  }
  EXPECT_GT(in_pieces, 100);
}

}  // namespace
}  // namespace flashbench::kernels::sm90
