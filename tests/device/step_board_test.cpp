#include "device/step_board.h"

#include <gtest/gtest.h>

#include <new>

namespace flashbench {
namespace {

using std::chrono::seconds;

TEST(StepBoard, AStepSaysWhatAndOnWhichRows) {
  EXPECT_EQ((RankStep{3, 4, StepWork::pull_keys, {RowRange{4096, 8192}}}.text()),
            "step 3 of 4 (pull of keys 4096 to 8191)");
  EXPECT_EQ((RankStep{1, 2, StepWork::attend_queries, {RowRange{0, 8}, RowRange{56, 64}}}.text()),
            "step 1 of 2 (attention of queries 0 to 7 and 56 to 63)");
  EXPECT_EQ((RankStep{1, 1, StepWork::sum_gradients, {RowRange{5, 5}, RowRange{6, 7}}}.text()),
            "step 1 of 1 (sum of the gradients of keys 6 to 6)");
}

// Of two that do not wait, the one that has been at its step for longer.
TEST(StepBoard, NamesTheRankThatTheOthersWaitFor) {
  StepBoard board;
  EXPECT_EQ(board.unfinished(), std::nullopt);
  for (const int rank : {0, 3, 2, 1}) {
    board.begin(rank, {rank + 1, 4, StepWork::attend_keys, {RowRange{0, 8}}});
  }
  board.wait_for_others(0);
  board.end(3);
  const auto text = board.unfinished(StepBoard::Clock::now() + seconds(5)).value();
  EXPECT_EQ(text, "rank 2 did not finish step 3 of 4 (attention to keys 0 to 7) in 5.0 s");
  board.end(2);
  EXPECT_EQ(board.unfinished().value().find("rank 1 did not finish step 2 of 4"), 0U);
  board.end(1);
  EXPECT_EQ(board.unfinished().value().find("rank 0 waited for the others in step 1 of 4"), 0U);
  board.begin(0, {2, 4, StepWork::attend_keys, {}});
  EXPECT_EQ(board.unfinished().value().find("rank 0 did not finish step 2 of 4"), 0U);
  board.end(0);
  EXPECT_EQ(board.unfinished(), std::nullopt);
}

// Memory that processes share is zero at first.
TEST(StepBoard, StartsWithEveryRankDone) {
  alignas(StepBoard) unsigned char memory[sizeof(StepBoard)] = {};
  EXPECT_EQ((new (memory) StepBoard)->unfinished(), std::nullopt);
}

}  // namespace
}  // namespace flashbench
