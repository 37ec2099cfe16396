#include "kernels/common/last_wave.h"

#include <gtest/gtest.h>

#include <utility>

namespace flashbench::kernels {
namespace {

std::pair<int, int> of(int64_t items, bool lengths_differ = false) {
  const LastWave last = last_wave(items, 132, 3, lengths_differ);
  return {last.items, last.pieces};
}

TEST(LastWave, IsSplitIntoThePiecesThatEndFirst) {
  for (const int64_t before : {0, 132, 4 * 132}) {
    EXPECT_EQ(of(before + 12), std::pair(12, 4));
    EXPECT_EQ(of(before + 33), std::pair(33, 4));
    EXPECT_EQ(of(before + 40), std::pair(40, 3));
    EXPECT_EQ(of(before + 66), std::pair(66, 2));
    EXPECT_EQ(of(before + 67), std::pair(67, 3));  // in two waves
    EXPECT_EQ(of(before + 88), std::pair(88, 3));
    EXPECT_EQ(of(before + 89), std::pair(89, 4));
    EXPECT_EQ(of(before + 100), std::pair(100, 1));
  }
  EXPECT_EQ(of(4 * 132), std::pair(0, 1));
}

TEST(LastWave, FillsTheGapsOfDifferentLengths) {
  EXPECT_EQ(of(4 * 132 + 12, true), std::pair(12, 4));
  EXPECT_EQ(of(4 * 132 + 89, true), std::pair(89, 4));
  EXPECT_EQ(of(4 * 132 + 100, true), std::pair(100, 2));
  EXPECT_EQ(of(4 * 132, true), std::pair(0, 1));
}

TEST(LastWave, HasNoMorePiecesThanThereIsRoomFor) {
  for (const int at_once : {1, 2, 66, 78, 132}) {
    for (int64_t items = 0; items < 3 * at_once; ++items) {
      for (const bool lengths_differ : {false, true}) {
        for (const int waves : {1, 2, 3}) {
          const LastWave last = last_wave(items, at_once, waves, lengths_differ);
          EXPECT_LE(last.items * last.pieces, (waves == 1 ? 2 : waves) * at_once);
          EXPECT_LE(last.pieces, kMostPieces);
          EXPECT_GE(last.pieces, 1);
        }
        const LastWave in_one = last_wave(items, at_once, 1, lengths_differ);
        EXPECT_LE(in_one.items * (in_one.pieces - 1), at_once);  // the backward pass's list
      }
    }
  }
}

}  // namespace
}  // namespace flashbench::kernels
