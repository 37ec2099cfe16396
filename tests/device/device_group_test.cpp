#include "device/device_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace flashbench {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(DeviceGroup, ShareTheThreadsOfTheHost) {
  const auto device = make_host_device(4);
  EXPECT_EQ(make_group(*device, 2)->info(1).threads, 2);
  EXPECT_EQ(make_group(*device, 8)->info(7).threads, 1);
  EXPECT_EQ(make_group(*device, 2)->stream(0).threads->threads(), 2);
}

TEST(DeviceGroup, AllRanksRunAtOnce) {
  const auto device = make_host_device(1);
  const auto group = make_group(*device, 5);
  std::atomic<int> here{0};
  group->run([&](int) {
    ++here;
    while (here < 5) std::this_thread::yield();  // would hang if one began after another
  });
  EXPECT_EQ(here, 5);
}

TEST(DeviceGroup, PullsArriveInOrderAndAllBeforeTheEnd) {
  const auto device = make_host_device(1);
  const auto group = make_group(*device, 3);
  std::array<std::vector<int>, 3> from, to;
  for (auto& values : from) {
    values.resize(1000);
    std::iota(values.begin(), values.end(), 0);
  }
  for (auto& values : to) values.assign(1000, -1);
  group->run([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const auto piece = [&](size_t first) {
      return RowCopy{to[r].data() + first, from[(r + 1) % 3].data() + first, 500 * sizeof(int)};
    };
    const int64_t first = group->pull(rank, (rank + 1) % 3, {piece(0)});
    group->pull(rank, (rank + 1) % 3, {piece(500)});
    group->wait(rank, first);
    EXPECT_EQ(to[r][499], 499);
  });
  EXPECT_THAT(to, Each(from[0]));
}

TEST(DeviceGroup, CopiesRowsWithTheirPitches) {
  const auto device = make_host_device(1);
  const auto group = make_group(*device, 2);
  const std::vector<char> from{'a', 'b', '.', 'c', 'd', '.'};
  std::vector<char> to(8, '-');
  group->run([&](int rank) {
    if (rank == 0) group->pull(0, 1, {{to.data(), from.data(), 2, 2, 4, 3}});
  });
  EXPECT_EQ(std::string(to.begin(), to.end()), "ab--cd--");
}

TEST(DeviceGroup, WhatIsWrittenBeforeABarrierIsSeenBehindIt) {
  const auto device = make_host_device(1);
  const auto group = make_group(*device, 4);
  std::array<int, 4> written{};
  group->run([&](int rank) {
    for (int round = 1; round <= 50; ++round) {
      written[static_cast<size_t>(rank)] = round;
      group->barrier(rank);
      EXPECT_THAT(written, Each(round));
      group->barrier(rank);
    }
  });
}

TEST(DeviceGroup, TheFirstFailureEndsAllAndTheNextRunIsWhole) {
  const auto device = make_host_device(1);
  const auto group = make_group(*device, 4);
  for (int run = 0; run < 20; ++run) {
    EXPECT_THAT(
        [&] {
          group->run([&](int rank) {
            if (rank == run % 4) throw std::runtime_error("lost");
            group->barrier(rank);
          });
        },
        ThrowsMessage<std::runtime_error>(HasSubstr("lost")));
    int whole = 0;
    group->run([&](int rank) {
      group->barrier(rank);
      if (rank == 0) whole = 1;
      group->barrier(rank);
      EXPECT_EQ(whole, 1);
    });
  }
}

}  // namespace
}  // namespace flashbench
