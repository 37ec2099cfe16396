#include "host/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace flashbench {
namespace {

TEST(ThreadPool, EveryItemRunsOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t items : {0, 1, 3, 1000}) {
      std::vector<int> runs(static_cast<size_t>(items), 0);
      pool.parallel_for(items, [&](int64_t item, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        ++runs[static_cast<size_t>(item)];
      });
      EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(items), 1));
    }
  }
}

TEST(ThreadPool, ThrowsWhatABodyThrewAndGoesOn) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(pool.parallel_for(100,
                                   [](int64_t item, int) {
                                     if (item == 7) throw std::runtime_error("seven");
                                   }),
                 std::runtime_error);
    std::atomic<int> runs{0};
    pool.parallel_for(10, [&](int64_t, int) { ++runs; });
    EXPECT_EQ(runs.load(), 10);
  }
}

TEST(ThreadPool, LoopsOfTwoThreadsTakeTurns) {
  ThreadPool pool(3);
  std::atomic<int64_t> total{0};
  const auto loops = [&](int64_t own) {
    for (int loop = 0; loop < 300; ++loop) {
      std::atomic<int64_t> sum{0};
      pool.parallel_for(8, [&](int64_t, int) { sum += own; });
      EXPECT_EQ(sum.load(), 8 * own);
      total += sum.load();
    }
  };
  std::thread other([&] { loops(1000); });
  loops(1);
  other.join();
  EXPECT_EQ(total.load(), 300 * 8 * 1001);
}

TEST(ThreadPool, ManyShortLoops) {
  ThreadPool pool(4);
  int64_t total = 0;
  for (int loop = 0; loop < 2000; ++loop) {
    std::atomic<int64_t> sum{0};
    pool.parallel_for(4, [&](int64_t item, int) { sum += item; });
    total += sum.load();
  }
  EXPECT_EQ(total, 2000 * 6);
}

}  // namespace
}  // namespace flashbench
