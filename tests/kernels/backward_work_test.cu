// Together, the thread blocks of the backward pass's main kernel process every block of queries
// that sees any of their keys, for every query head, exactly once, for any number of parts, or of
// pieces in the last wave; also backwards, where the last blocks come first, and with windows.
// Their turns at a block let all of them end.
#include "kernels/backward/work.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/common/last_wave.h"

namespace flashbench::kernels::backward {
namespace {

struct Arguments {
  int batch, kv_heads, group, q_len, key_end, diagonal, key_blocks;
  Sections sections;
  int parts;
  int rotation = 0;
  int whole_items = 0, pieces = 1;
};

using Visits =
    std::map<std::tuple<int, int, int, int>, int>;  // batch, query head, block, key block

template <int kBlockQ, bool kBackwards = false>
Visits visits(const Arguments& a) {
  Visits found;
  for (int i = 0; i < a.batch * a.kv_heads * a.parts * a.key_blocks; ++i) {
    const Work<kBlockQ, 128, kBackwards> work(a, i);
    Step step(work);
    for (int s = 0; s < work.steps; ++s, step.advance(work)) {
      ++found[{work.batch, step.head, step.block, work.key_block}];
    }
  }
  return found;
}

// The steps of one thread block: query heads and blocks.
template <int kBlockQ, bool kBackwards>
std::vector<std::pair<int, int>> order(const Arguments& a, int index) {
  const Work<kBlockQ, 128, kBackwards> work(a, index);
  std::vector<std::pair<int, int>> found;
  Step step(work);
  for (int s = 0; s < work.steps; ++s, step.advance(work)) {
    found.emplace_back(step.head, step.block);
  }
  return found;
}

// Backwards: the last block first, of all heads.
bool goes_before(const std::pair<int, int>& a, const std::pair<int, int>& b) {
  return std::pair(-a.second, a.first) < std::pair(-b.second, b.first);
}

template <int kBlockQ>
Visits all(const Arguments& a) {
  Visits expected;
  for (int batch = 0; batch < a.batch; ++batch) {
    for (int head = 0; head < a.kv_heads * a.group; ++head) {
      for (int key = 0; key < a.key_end; key += 128) {
        const int first = max(0, key - a.diagonal) / kBlockQ;
        for (int block = first; block * kBlockQ < a.q_len; ++block) {
          expected[{batch, head, block, key / 128}] = 1;
        }
      }
    }
  }
  return expected;
}

template <int kBlockQ>
void expect_every_visible_block_once() {
  for (const int group : {1, 2, 3, 7}) {
    for (const int q_len : {1, 64, 65, 500, 777}) {
      for (const int kv_len : {1, 128, 300, 900}) {
        for (const bool causal : {false, true}) {
          for (int parts = 1; parts <= 9; ++parts) {
            if (parts > group * ((q_len + kBlockQ - 1) / kBlockQ)) break;
            const int diagonal = causal ? kv_len - q_len : 1 << 30;
            const Arguments a{.batch = 2,
                              .kv_heads = 2,
                              .group = group,
                              .q_len = q_len,
                              .key_end = kv_len,
                              .diagonal = diagonal,
                              .key_blocks = (kv_len + 127) / 128,
                              .sections = {3, (4 * parts - 1) / 3 - parts % 2},
                              .parts = parts};
            const auto problem = [&] {
              return std::to_string(group) + " heads, " + std::to_string(q_len) + " x " +
                     std::to_string(kv_len) + (causal ? " causal, " : ", ") +
                     std::to_string(parts) + " parts";
            };
            ASSERT_EQ(visits<kBlockQ>(a), all<kBlockQ>(a)) << problem();
            for (int i = 0; i < a.batch * a.kv_heads * a.parts * a.key_blocks; ++i) {
              const auto steps = order<kBlockQ, true>(a, i);
              ASSERT_TRUE(std::ranges::is_sorted(steps, goes_before)) << problem() << ", " << i;
              const auto forwards = order<kBlockQ, false>(a, i);
              ASSERT_THAT(steps, testing::UnorderedElementsAreArray(forwards))
                  << problem() << ", " << i;
            }
          }
        }
      }
    }
  }
}

// Blocks of keys from the item `whole_items` on in pieces.
template <int kBlockQ>
void expect_every_block_once_in_pieces() {
  for (const int group : {1, 3}) {
    for (const int q_len : {4 * kBlockQ, 900, 1111}) {
      for (const int kv_len : {1, 300, 900}) {
        for (int pieces = 2; pieces <= kMostPieces; ++pieces) {
          const int key_blocks = (kv_len + 127) / 128, items = 4 * key_blocks;
          for (int whole = 0; whole <= items; ++whole) {
            const Arguments a{.batch = 2,
                              .kv_heads = 2,
                              .group = group,
                              .q_len = q_len,
                              .key_end = kv_len,
                              .diagonal = 1 << 30,
                              .key_blocks = key_blocks,
                              .sections = {1, 3},
                              .parts = 1,
                              .whole_items = whole,
                              .pieces = pieces};
            const std::string problem = std::to_string(group) + " heads, " + std::to_string(q_len) +
                                        " x " + std::to_string(kv_len) + ", " +
                                        std::to_string(pieces) + " pieces from " +
                                        std::to_string(whole) + " on";
            const int steps = group * ((q_len + kBlockQ - 1) / kBlockQ);
            Visits found;
            for (int i = 0; i < whole + (items - whole) * pieces; ++i) {
              const Work<kBlockQ, 128, false, true> work(a, i);
              const auto [count, first_piece] = work.pieces[0];
              ASSERT_EQ(count, i < whole ? 1 : pieces) << problem;
              if (count > 1) {
                ASSERT_EQ(first_piece + work.part, i - whole) << problem;
                ASSERT_EQ(first_piece % pieces, 0) << problem;
              }
              ASSERT_GE(work.steps, steps / count) << problem;
              ASSERT_LE(work.steps, (steps + count - 1) / count) << problem;
              Step step(work);
              for (int s = 0; s < work.steps; ++s, step.advance(work)) {
                ++found[{work.batch, step.head, step.block, work.key_block}];
              }
            }
            ASSERT_EQ(found, all<kBlockQ>(a)) << problem;
          }
        }
      }
    }
  }
}

// The work where query i sees no key before i + first_from.
template <int kBlockQ, bool kBackwards>
struct WindowedWork : Work<kBlockQ, 128, kBackwards> {
  WindowedWork(const Arguments& a, int first_from, int index) {
    const SectionItem item =
        item_in_sections(index, a.batch * a.kv_heads * a.parts, a.sections, a.key_blocks);
    this->begin(a, item.head);
    this->divide(a, item.block, a.parts, a.q_len, first_from, a.diagonal, a.key_end);
  }
};

template <int kBlockQ, bool kBackwards>
Visits windowed_visits(const Arguments& a, int first_from) {
  Visits found;
  for (int i = 0; i < a.batch * a.kv_heads * a.parts * a.key_blocks; ++i) {
    const WindowedWork<kBlockQ, kBackwards> work(a, first_from, i);
    if (work.steps == 0) continue;
    Step step(work);
    for (int s = 0; s < work.steps; ++s, step.advance(work)) {
      ++found[{work.batch, step.head, step.block, work.key_block}];
    }
  }
  return found;
}

// The pairs of blocks that have a query and a key that it sees.
template <int kBlockQ>
Visits all_in_window(const Arguments& a, int first_from) {
  Visits expected;
  for (int q = 0; q < a.q_len; ++q) {
    for (int key = max(0, q + first_from); key < min(a.key_end, q + a.diagonal + 1); ++key) {
      for (int batch = 0; batch < a.batch; ++batch) {
        for (int head = 0; head < a.kv_heads * a.group; ++head) {
          expected[{batch, head, q / kBlockQ, key / 128}] = 1;
        }
      }
    }
  }
  return expected;
}

template <int kBlockQ>
void expect_every_block_in_the_window_once() {
  for (const int group : {1, 3}) {
    for (const int q_len : {1, 65, 500}) {
      for (const int kv_len : {1, 300, 900}) {
        for (const int left : {0, 63, 64, 65, 200}) {
          for (const int right : {0, 100}) {
            const int own = kv_len - q_len;  // of query 0
            const int first_live = max(0, -own - right);
            const Arguments all_parts{.batch = 1,
                                      .kv_heads = 2,
                                      .group = group,
                                      .q_len = q_len - first_live,
                                      .key_end = kv_len,
                                      .diagonal = own + right + first_live,
                                      .key_blocks = (kv_len + 127) / 128,
                                      .sections = {2, 0},
                                      .parts = 1};
            const int first_from = own - left + first_live;
            const auto expected = all_in_window<kBlockQ>(all_parts, first_from);
            for (int parts = 1; parts <= 4; ++parts) {
              Arguments a = all_parts;
              a.parts = parts;
              if (parts > group * ((a.q_len + kBlockQ - 1) / kBlockQ)) break;
              const std::string problem =
                  std::to_string(group) + " heads, " + std::to_string(q_len) + " x " +
                  std::to_string(kv_len) + ", " + std::to_string(left) + " and " +
                  std::to_string(right) + " keys, " + std::to_string(parts) + " parts";
              ASSERT_EQ((windowed_visits<kBlockQ, false>(a, first_from)), expected) << problem;
              ASSERT_EQ((windowed_visits<kBlockQ, true>(a, first_from)), expected) << problem;
            }
          }
        }
      }
    }
  }
}

// Lets all thread blocks add to one block of queries after the other, each in its turn, and as many
// at a time as can. Returns the number of times.
template <int kBlockQ>
int rounds_in_turns(const Arguments& a) {
  struct ThreadBlock {
    Work<kBlockQ, 128, true> work;
    Step step;
    int left;
  };
  std::vector<ThreadBlock> waiting;
  for (int i = 0; i < a.batch * a.kv_heads * a.parts * a.key_blocks; ++i) {
    const Work<kBlockQ, 128, true> work(a, i);
    waiting.push_back({work, Step(work), work.steps});
  }
  std::map<std::tuple<int, int, int>, int> turns;  // at a batch, query head and block
  const auto turn = [&](const ThreadBlock& t) -> int& {
    return turns[{t.work.batch, t.step.head, t.step.block}];
  };
  int rounds = 0;
  for (; !waiting.empty(); ++rounds) {
    std::vector<ThreadBlock*> adding;
    for (ThreadBlock& t : waiting) {
      if (turn(t) == t.work.turn(t.step.block)) adding.push_back(&t);
    }
    if (adding.empty()) {
      ADD_FAILURE() << waiting.size() << " thread blocks wait for each other";
      return 0;
    }
    for (ThreadBlock* t : adding) {
      ++turn(*t);
      t->step.advance(t->work);
      --t->left;
    }
    std::erase_if(waiting, [](const ThreadBlock& t) { return t.left == 0; });
  }
  for (const auto& [block, count] : turns) EXPECT_EQ(count, a.key_blocks);
  return rounds;
}

Arguments unmasked(int group, int blocks_q, int key_blocks, int parts, int block_q) {
  return {.batch = 2,
          .kv_heads = 2,
          .group = group,
          .q_len = blocks_q * block_q - 3,
          .key_end = key_blocks * 128 - 1,
          .diagonal = 1 << 30,
          .key_blocks = key_blocks,
          .sections = {3, 1},
          .parts = parts};
}

template <int kBlockQ>
void expect_rotation_without_waits() {
  for (const int group : {1, 2, 3}) {
    for (const int blocks_q : {1, 2, 5, 8}) {
      for (int key_blocks = 1; key_blocks <= blocks_q; ++key_blocks) {
        for (int parts = 1; parts <= group * blocks_q; ++parts) {
          Arguments a = unmasked(group, blocks_q, key_blocks, parts, kBlockQ);
          const int in_order = rounds_in_turns<kBlockQ>(a);
          a.rotation = key_blocks;
          ASSERT_EQ((visits<kBlockQ, true>(a)), all<kBlockQ>(a));
          const int rotated = rounds_in_turns<kBlockQ>(a);
          ASSERT_LE(rotated, in_order);
          if (group % parts == 0) {
            ASSERT_EQ(rotated, group / parts * blocks_q);
            ASSERT_EQ(in_order, rotated + key_blocks - 1);
          }
        }
      }
    }
  }
}

TEST(BackwardWork, WaitsForNoOtherIfItRotates) {
  expect_rotation_without_waits<64>();
  expect_rotation_without_waits<128>();
}

TEST(BackwardWork, IsEveryBlockInTheWindowOnce) {
  expect_every_block_in_the_window_once<64>();
  expect_every_block_in_the_window_once<128>();
}

TEST(BackwardWork, IsEveryBlockOnceInPieces) {
  expect_every_block_once_in_pieces<64>();
  expect_every_block_once_in_pieces<128>();
}

TEST(BackwardWork, IsEveryVisibleBlockOnce) {
  expect_every_visible_block_once<64>();
  expect_every_visible_block_once<128>();
}

}  // namespace
}  // namespace flashbench::kernels::backward
