#include "measure/undisturbed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flashbench {
namespace {

using testing::ElementsAre;

constexpr Load kQuiet{1, 2, 0.02, 0}, kHeavy{1, 2, 1.5, 0};

Measurement waiting(std::vector<double> seconds, const std::vector<double>& waits, Load load) {
  Measurement measurement;
  measurement.seconds = std::move(seconds);
  for (double wait : waits) measurement.core_times.push_back({1, wait});
  measurement.load = load;
  return measurement;
}

TEST(Undisturbed, ASampleMayWaitAHundredthOrATenthOfAMillisecond) {
  EXPECT_THAT(undisturbed(waiting({1, 1, 2e-3, 2e-3}, {0.009, 0.011, 0.9e-4, 1.1e-4}, kHeavy)),
              ElementsAre(true, false, true, false));
}

// Two sweeps of an unchanged `tiled`, whose samples of 0.06 ms waited for most of their time beside
// one busy process, were compared as undisturbed.
TEST(Undisturbed, AShortSampleMayWaitATwentieth) {
  EXPECT_THAT(undisturbed(waiting({6e-5, 6e-5, 1e-3, 1e-3}, {2e-6, 4e-6, 4e-5, 6e-5}, kHeavy)),
              ElementsAre(true, false, true, false));
}

TEST(Undisturbed, OnAQuietMachineThreadsWaitForEachOther) {
  EXPECT_THAT(undisturbed(waiting({1, 1}, {0.5, 0}, kQuiet)), ElementsAre(true, true));
}

TEST(Undisturbed, WhereNothingIsKnownAllAre) {
  EXPECT_THAT(undisturbed(waiting({1, 1}, {}, kHeavy)), ElementsAre(true, true));
  Measurement without_load = waiting({1, 1}, {0.5, 0}, kHeavy);
  without_load.load.reset();
  EXPECT_THAT(undisturbed(without_load), ElementsAre(true, true));
  EXPECT_FALSE(is_blind(without_load));
}

TEST(Undisturbed, LoadWithoutWaitsIsBlind) {
  EXPECT_TRUE(is_blind(waiting({1, 1}, {}, kHeavy)));
  EXPECT_FALSE(is_blind(waiting({1, 1}, {}, kQuiet)));
  EXPECT_FALSE(is_blind(waiting({1, 1}, {0, 0}, kHeavy)));
}

}  // namespace
}  // namespace flashbench
