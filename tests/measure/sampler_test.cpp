#include "measure/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "scripted_device.h"

namespace flashbench {
namespace {

MeasureOptions quick() {
  MeasureOptions options;
  options.warmup_runs = 1;
  options.warmup_seconds = 0;
  options.min_samples = 6;
  options.max_samples = 20;
  options.max_seconds = 60;
  return options;
}

const auto kNever = [] { return false; };

Contender logging(ScriptedDevice& device, const std::string& name) {
  return {.before = [&device, name] { device.log += "(" + name; },
          .run = [&device, name] { device.log += name; },
          .after = [&device, name] { device.log += name + ")"; }};
}

TEST(Sampler, WarmSamplesFollowAnUntimedRun) {
  ScriptedDevice device;
  const auto timings = measure_interleaved(device, {logging(device, "a")}, quick(), 1, kNever);
  EXPECT_EQ(timings[0].measurement.seconds, std::vector<double>(6, 0.01));
  EXPECT_EQ(timings[0].measurement.stop_reason, "interval");
  EXPECT_GE(timings[0].measurement.warmup_runs, 1);
  EXPECT_EQ(device.log.substr(device.log.size() - 6), "a(aaa)");
}

TEST(Sampler, ColdSamplesFollowAnEviction) {
  ScriptedDevice device;
  MeasureOptions options = quick();
  options.cache = CacheState::cold;
  const auto timings = measure_interleaved(device, {logging(device, "a")}, options, 1, kNever);
  EXPECT_EQ(timings[0].measurement.cache, CacheState::cold);
  EXPECT_EQ(device.log.substr(device.log.size() - 6), "(aeaa)");
}

TEST(Sampler, RoundsInterleaveInChangingOrder) {
  ScriptedDevice device;
  std::string order;
  const auto contender = [&](char name) {
    return Contender{.before = [] {}, .run = [] {}, .after = [&order, name] { order += name; }};
  };
  MeasureOptions options = quick();
  options.min_samples = 12;
  measure_interleaved(device, {contender('a'), contender('b'), contender('c')}, options, 1, kNever);
  ASSERT_EQ(order.size(), 36u);
  std::vector<std::string> rounds;
  for (size_t i = 0; i < order.size(); i += 3) {
    std::string round = order.substr(i, 3);
    rounds.push_back(round);
    std::sort(round.begin(), round.end());
    EXPECT_EQ(round, "abc");
  }
  std::sort(rounds.begin(), rounds.end());
  EXPECT_GT(std::unique(rounds.begin(), rounds.end()) - rounds.begin(), 1);
}

TEST(Sampler, NoisyContendersStopAtTheMaximum) {
  ScriptedDevice device;
  int run = 0;
  const Contender noisy{.before = [] {},
                        .run = [&] { device.seconds = ++run % 2 == 0 ? 0.01 : 0.02; },
                        .after = [] {}};
  MeasureOptions options = quick();
  options.cache = CacheState::cold;
  const auto timings = measure_interleaved(device, {noisy}, options, 1, kNever);
  EXPECT_EQ(timings[0].measurement.seconds.size(), 20u);
  EXPECT_EQ(timings[0].measurement.stop_reason, "max_samples");
}

// A noisy one that is timed beside the others takes part in their rounds, and in no more.
TEST(Sampler, AContenderThatDoesNotProlongTakesPartInTheRoundsOfOthers) {
  ScriptedDevice device;
  int run = 0;
  Contender beside{.before = [] {},
                   .run = [&] { device.seconds = ++run % 2 == 0 ? 0.01 : 0.02; },
                   .after = [] {}};
  beside.prolongs = false;
  const Contender steady{.before = [] {}, .run = [&] { device.seconds = 0.01; }, .after = [] {}};
  MeasureOptions options = quick();
  options.cache = CacheState::cold;
  const auto timings = measure_interleaved(device, {steady, beside}, options, 1, kNever);
  EXPECT_EQ(timings[0].measurement.seconds.size(), 6u);
  EXPECT_EQ(timings[1].measurement.seconds.size(), 6u);
}

TEST(Sampler, TheTimeCapEndsASlowContender) {
  ScriptedDevice device;
  MeasureOptions options = quick();
  options.max_seconds = 0;
  const auto timings = measure_interleaved(device, {logging(device, "a")}, options, 1, kNever);
  EXPECT_EQ(timings[0].measurement.seconds.size(), 1u);
  EXPECT_EQ(timings[0].measurement.stop_reason, "time_cap");
}

TEST(Sampler, AFailureEndsOneContenderOnly) {
  ScriptedDevice device;
  Contender failing = logging(device, "x");
  failing.after = [] { throw std::runtime_error("wrong"); };
  const auto timings =
      measure_interleaved(device, {failing, logging(device, "a")}, quick(), 1, kNever);
  EXPECT_TRUE(timings[0].error);
  EXPECT_TRUE(timings[0].measurement.seconds.empty());
  EXPECT_FALSE(timings[1].error);
  EXPECT_EQ(timings[1].measurement.seconds.size(), 6u);
}

TEST(Sampler, WarmUpRunsAtLeastAsOftenAndAsLongAsAsked) {
  ScriptedDevice device;
  MeasureOptions options = quick();
  options.warmup_runs = 3;
  options.warmup_seconds = 0.1;
  const auto timings = measure_interleaved(device, {logging(device, "a")}, options, 1, kNever);
  EXPECT_GE(timings[0].measurement.warmup_runs, 10);  // 10 runs of 0.01 s
  EXPECT_LE(timings[0].measurement.warmup_runs, 40);
}

TEST(Sampler, CoreTimesAreThoseOfTheTimedRun) {
  ScriptedDevice device;
  device.seconds = 60;  // far more than the test itself takes
  device.ran = device.waited = 1000;
  const Contender contender{.before = [] {},
                            .run =
                                [&] {
                                  *device.ran += 3;
                                  *device.waited += 0.5;
                                },
                            .after = [] {}};
  const auto timings = measure_interleaved(device, {contender}, quick(), 1, kNever);
  const Measurement& measurement = timings[0].measurement;
  ASSERT_EQ(measurement.core_times.size(), measurement.seconds.size());
  for (const CoreTime& time : measurement.core_times) {
    EXPECT_EQ(time.ran, 3);
    EXPECT_EQ(time.waited, 0.5);
  }
}

TEST(Sampler, ADeviceThatDoesNotTellHasNoCoreTimes) {
  ScriptedDevice device;
  device.ran = 1;
  const auto timings = measure_interleaved(device, {logging(device, "a")}, quick(), 1, kNever);
  EXPECT_TRUE(timings[0].measurement.core_times.empty());
}

TEST(Sampler, InterruptionKeepsWhatWasTaken) {
  ScriptedDevice device;
  int samples = 0;
  Contender counting = logging(device, "a");
  counting.after = [&] { ++samples; };
  const auto timings =
      measure_interleaved(device, {counting}, quick(), 1, [&] { return samples == 3; });
  EXPECT_EQ(timings[0].measurement.seconds.size(), 3u);
  EXPECT_EQ(timings[0].measurement.stop_reason, "interrupted");
}

}  // namespace
}  // namespace flashbench
