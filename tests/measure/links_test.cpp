#include "measure/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flashbench {
namespace {

using testing::SizeIs;

// Groups of the host's threads copy by memcpy: between a byte a microsecond, and a thousand times
// the fastest memory.
TEST(Links, AreMeasuredBetweenEveryTwoDevices) {
  const auto device = make_host_device(2);
  const Links links = measure_links(*device, 3, size_t{1} << 20);
  EXPECT_EQ(links.ranks, 3);
  ASSERT_THAT(links.one_way, SizeIs(9));
  ASSERT_THAT(links.both_ways, SizeIs(9));
  const auto possible = [](double rate) { return rate > 1e6 && rate < 1e15; };
  for (size_t i = 0; i < 9; ++i) {
    const bool itself = i / 3 == i % 3;
    EXPECT_EQ(possible(links.one_way[i]), !itself) << links.one_way[i];
    EXPECT_EQ(possible(links.both_ways[i]), !itself) << links.both_ways[i];
  }
  EXPECT_TRUE(possible(links.all_at_once)) << links.all_at_once;
  EXPECT_EQ(device->used().total(), 0);
}

}  // namespace
}  // namespace flashbench
