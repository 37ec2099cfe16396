#include "device/rank_barrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/device_group.h"

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

void on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST(RankBarrier, HoldsUpAllUntilTheLastIsHere) {
  RankBarrier barrier(4, 60);
  barrier.begin();
  std::atomic<int> arrived{0};
  on_threads(4, [&](int rank) {
    for (int round = 1; round <= 200; ++round) {
      ++arrived;
      barrier.arrive(rank);
      EXPECT_EQ(arrived, 4 * round);
      barrier.arrive(rank);
    }
  });
  EXPECT_EQ(barrier.failure(), nullptr);
}

TEST(RankBarrier, AFailureEndsTheWaitOfAllAndTheNextRunIsWhole) {
  RankBarrier barrier(3, 60);
  for (int run = 0; run < 20; ++run) {
    barrier.begin();
    on_threads(3, [&](int rank) {
      if (rank == run % 3) {
        return barrier.fail(std::make_exception_ptr(std::runtime_error("lost")));
      }
      EXPECT_THROW(barrier.arrive(rank), RankFailed);
      barrier.fail(std::make_exception_ptr(RankFailed("another rank failed")));
    });
    EXPECT_THAT([&] { std::rethrow_exception(barrier.failure()); },
                ThrowsMessage<std::runtime_error>(HasSubstr("lost")));
    barrier.begin();
    on_threads(3, [&](int rank) { barrier.arrive(rank); });
    EXPECT_EQ(barrier.failure(), nullptr);
  }
}

TEST(RankBarrier, WhoWaitsTooLongNamesThoseThatAreMissing) {
  RankBarrier barrier(4, 0.01);
  barrier.begin();
  EXPECT_THAT([&] { barrier.arrive(2); },
              ThrowsMessage<std::runtime_error>("rank 2 waited 0.01 s for rank 0, 1, 3"));
}

}  // namespace
}  // namespace flashbench
