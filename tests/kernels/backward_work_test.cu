// The thread blocks of the backward pass's main kernel take every block of queries that sees some
// of their keys, of every query head, exactly once, however many parts they are cut into.
#include "kernels/sm80/backward_work.cuh"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

namespace flashbench::kernels::sm80 {
namespace {

struct Arguments {
  int batch, kv_heads, group, q_len, key_end, diagonal, key_blocks, section_heads, parts;
};

using Visits =
    std::map<std::tuple<int, int, int, int>, int>;  // batch, query head, block, key block

Visits visits(const Arguments& a) {
  Visits found;
  for (int i = 0; i < a.batch * a.kv_heads * a.parts * a.key_blocks; ++i) {
    const Work<64, 128> work(a, i);
    Step step(work);
    for (int s = 0; s < work.steps; ++s, step.advance(work)) {
      ++found[{work.batch, step.head, step.block, work.key_block}];
    }
  }
  return found;
}

Visits all(const Arguments& a) {
  Visits expected;
  for (int batch = 0; batch < a.batch; ++batch) {
    for (int head = 0; head < a.kv_heads * a.group; ++head) {
      for (int key = 0; key < a.key_end; key += 128) {
        for (int query = max(0, key - a.diagonal) / 64 * 64; query < a.q_len; query += 64) {
          expected[{batch, head, query / 64, key / 128}] = 1;
        }
      }
    }
  }
  return expected;
}

TEST(BackwardWork, IsEveryVisibleBlockOnce) {
  for (const int group : {1, 2, 3, 7}) {
    for (const int q_len : {1, 64, 65, 500, 777}) {
      for (const int kv_len : {1, 128, 300, 900}) {
        for (const bool causal : {false, true}) {
          for (int parts = 1; parts <= 9; ++parts) {
            if (parts > group * ((q_len + 63) / 64)) break;
            const int diagonal = causal ? kv_len - q_len : 1 << 30;
            const Arguments a{.batch = 2,
                              .kv_heads = 2,
                              .group = group,
                              .q_len = q_len,
                              .key_end = kv_len,
                              .diagonal = diagonal,
                              .key_blocks = (kv_len + 127) / 128,
                              .section_heads = 3,
                              .parts = parts};
            ASSERT_EQ(visits(a), all(a)) << group << " heads, " << q_len << " x " << kv_len
                                         << (causal ? " causal, " : ", ") << parts << " parts";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace flashbench::kernels::sm80
