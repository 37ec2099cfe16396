#include "measure/energy.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "scripted_device.h"

namespace flashbench {
namespace {

// An energy counter that ticks after a fixed number of runs.
class Meter {
 public:
  void run() {
    ++runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    device.joules = std::floor(runs / 7.0) * kTick;
  }

  static constexpr double kTick = 14;
  ScriptedDevice device;
  int runs = 0;
};

TEST(Energy, IsTakenFromTickToTick) {
  Meter meter;
  meter.device.joules = 0;
  const auto energy = measure_energy(
      meter.device, [&] { meter.run(); }, 0.02, [] { return false; });
  ASSERT_TRUE(energy);
  EXPECT_GE(energy->seconds, 0.02);
  EXPECT_GE(energy->seconds_per_run, 0.001);
  EXPECT_GT(energy->joules, 0);
  EXPECT_EQ(std::fmod(energy->joules, Meter::kTick), 0);
  EXPECT_EQ(energy->joules_per_run(), energy->joules / energy->seconds * energy->seconds_per_run);
}

TEST(Energy, IsAbsentWhereTheDeviceDoesNotTell) {
  Meter meter;
  EXPECT_FALSE(measure_energy(
      meter.device, [&] { ++meter.runs; }, 1, [] { return false; }));
  EXPECT_EQ(meter.runs, 0);
}

TEST(Energy, IsAbsentWhereItWasInterrupted) {
  Meter meter;
  meter.device.joules = 0;
  EXPECT_FALSE(measure_energy(
      meter.device, [&] { meter.run(); }, 1, [&] { return meter.runs > 50; }));
}

TEST(Energy, OfACounterThatStandsStillIsAbsent) {
  ScriptedDevice device;
  device.joules = 5;
  EXPECT_FALSE(measure_energy(
      device, [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }, 0.01,
      [] { return false; }));
}

}  // namespace
}  // namespace flashbench
