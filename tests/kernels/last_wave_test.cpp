#include "kernels/common/last_wave.h"

#include <gtest/gtest.h>

#include <utility>

namespace flashbench::kernels {
namespace {

std::pair<int, int> of(int64_t items, const PieceTimes& times) {
  const LastWave last = last_wave(items, 132, 3, times);
  return {last.items, last.pieces};
}

TEST(LastWave, IsSplitIntoThePiecesThatEndFirst) {
  constexpr PieceTimes kNoEnds{.item = 12, .ends = 0, .least_share = 1};
  for (const int64_t before : {0, 132, 4 * 132}) {
    EXPECT_EQ(of(before + 12, kNoEnds), std::pair(12, 4));
    EXPECT_EQ(of(before + 33, kNoEnds), std::pair(33, 4));
    EXPECT_EQ(of(before + 40, kNoEnds), std::pair(40, 3));
    EXPECT_EQ(of(before + 66, kNoEnds), std::pair(66, 2));
    EXPECT_EQ(of(before + 67, kNoEnds), std::pair(67, 3));  // in two waves
    EXPECT_EQ(of(before + 88, kNoEnds), std::pair(88, 3));
    EXPECT_EQ(of(before + 89, kNoEnds), std::pair(89, 4));  // in three
    EXPECT_EQ(of(before + 100, kNoEnds), std::pair(100, 1));
  }
  EXPECT_EQ(of(4 * 132, kNoEnds), std::pair(0, 1));
}

TEST(LastWave, IsSplitIfThatMakesUpForTheEndsOfPieces) {
  const auto with_ends = [](int item) { return PieceTimes{item, 6, 8}; };
  EXPECT_EQ(of(96, with_ends(256)), std::pair(96, 4));
  EXPECT_EQ(of(96, with_ends(32)), std::pair(96, 1));  // 3 x (8 + 6) > 32
  EXPECT_EQ(of(24, with_ends(32)), std::pair(24, 4));
  EXPECT_EQ(of(24, with_ends(24)), std::pair(24, 3));  // not less than 8 each
  EXPECT_EQ(of(24, with_ends(15)), std::pair(24, 2));
  EXPECT_EQ(of(24, with_ends(14)), std::pair(24, 1));
}

TEST(LastWave, TakesWhatItsPiecesDo) {
  const auto time = [](int64_t items) { return last_wave(items, 132, 3, {32, 6, 8}).time; };
  EXPECT_EQ(time(132), 0);
  EXPECT_EQ(time(132 + 96), 32);      // whole
  EXPECT_EQ(time(132 + 24), 8 + 6);   // in four pieces
  EXPECT_EQ(time(132 + 66), 16 + 6);  // in two
}

TEST(LastWave, HasNoMorePiecesThanThereIsRoomFor) {
  for (const int at_once : {1, 2, 66, 78, 132}) {
    for (int64_t items = 0; items < 3 * at_once; ++items) {
      for (const int most_waves : {1, 3}) {
        const LastWave last = last_wave(items, at_once, most_waves, {12, 0, 1});
        EXPECT_LE(last.pieces, kMostPieces);
        EXPECT_GE(last.pieces, 1);
        EXPECT_LE(last.items * last.pieces, most_waves * at_once);
      }
    }
  }
}

}  // namespace
}  // namespace flashbench::kernels
