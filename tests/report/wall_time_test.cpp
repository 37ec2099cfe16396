#include "report/wall_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(WallTime, AddsUpByPhaseInTheOrderTheyCame) {
  WallTime wall;
  wall.add("b", 1);
  wall.add("a", 2);
  WallTime more;
  more.add("a", 4);
  more.add("c", 8);
  wall.add(more);
  EXPECT_THAT(wall.phases(), ElementsAre(Pair("b", 1), Pair("a", 6), Pair("c", 8)));
  EXPECT_EQ(wall.total(), 15);
}

TEST(PhaseClock, APhaseWithinAnotherTakesItsTimeFromThatOne) {
  using namespace std::chrono_literals;
  const auto start = std::chrono::steady_clock::now();
  PhaseClock clock;
  {
    const PhaseClock::Phase outer(clock, "outer");
    {
      const PhaseClock::Phase inner(clock, "inner");
      std::this_thread::sleep_for(20ms);
    }
    std::this_thread::sleep_for(5ms);
  }
  std::this_thread::sleep_for(5ms);  // in no phase
  const WallTime wall = clock.take();
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
  ASSERT_THAT(wall.phases(),
              ElementsAre(Pair("outer", testing::Ge(0.005)), Pair("inner", testing::Ge(0.02))));
  EXPECT_LE(wall.total(), all.count() - 0.005);
  EXPECT_TRUE(clock.take().phases().empty()) << "it is taken once";
}

}  // namespace
}  // namespace flashbench
