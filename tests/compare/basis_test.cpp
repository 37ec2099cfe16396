#include "compare/basis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Samples 1, 2, 3, ... of these processes, that ran as long.
Measurement counted_samples(const std::vector<int>& processes) {
  Measurement measurement;
  for (const int count : processes) {
    for (int i = 0; i < count; ++i) {
      measurement.seconds.push_back(static_cast<double>(measurement.seconds.size() + 1));
    }
  }
  if (processes.size() > 1) measurement.samples_per_process = processes;
  return measurement;
}

// The same beside load, where these samples (from 0) waited as long as they took.
Measurement loaded(Measurement measurement, const std::vector<size_t>& waited) {
  measurement.load = Load{.seconds = 1, .cores = 2, .others = 1.5};
  for (const double seconds : measurement.seconds) measurement.core_times.push_back({seconds, 0});
  for (const size_t i : waited) measurement.core_times[i].waited = measurement.seconds[i];
  return measurement;
}

Basis basis_of(const Measurement& base, const Measurement& now) {
  std::string why_not;
  const auto basis = common_basis(base, now, why_not);
  EXPECT_TRUE(basis) << why_not;
  return basis.value_or(Basis{});
}

TEST(BasisTest, OnAQuietMachineAllSamplesAreComparedByProcess) {
  const Basis basis = basis_of(counted_samples({2, 1}), counted_samples({3}));
  EXPECT_EQ(basis.kind, Basis::Kind::samples);
  EXPECT_THAT(basis.base, ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_THAT(basis.now, ElementsAre(ElementsAre(1, 2, 3)));
  EXPECT_THAT(flat(basis.base), ElementsAre(1, 2, 3));
}

TEST(BasisTest, BesideLoadThatDisturbedNoSampleAllAreCompared) {
  const Measurement quiet = counted_samples({9});
  EXPECT_EQ(basis_of(quiet, loaded(quiet, {})).kind, Basis::Kind::samples);
}

TEST(BasisTest, EightUndisturbedSamplesOfASideAreEnough) {
  const Measurement nine = counted_samples({9});
  for (const bool now_is_loaded : {false, true}) {
    const Measurement eight_left = loaded(nine, {4}), other = loaded(nine, {});
    const Basis basis = now_is_loaded ? basis_of(other, eight_left) : basis_of(eight_left, other);
    EXPECT_EQ(basis.kind, Basis::Kind::undisturbed);
    EXPECT_THAT(flat(now_is_loaded ? basis.now : basis.base), ElementsAre(1, 2, 3, 4, 6, 7, 8, 9));
    EXPECT_EQ(basis_of(loaded(nine, {4, 5}), other).kind, Basis::Kind::processor);
  }
}

TEST(BasisTest, EachProcessNeedsFourUndisturbedSamples) {
  const Measurement two = counted_samples({5, 9});
  EXPECT_EQ(basis_of(two, loaded(two, {0})).kind, Basis::Kind::undisturbed);
  EXPECT_EQ(basis_of(two, loaded(two, {5, 6, 7, 8, 9})).kind, Basis::Kind::undisturbed);
  const Measurement three_left = loaded(two, {0, 1});
  EXPECT_EQ(basis_of(loaded(two, {}), three_left).kind, Basis::Kind::processor);
}

TEST(BasisTest, ProcessorTimesAreThoseThatTheSamplesRan) {
  Measurement base = loaded(counted_samples({4}), {0, 1});
  base.core_times[2].ran = 30;
  const Basis basis = basis_of(base, base);
  EXPECT_EQ(basis.kind, Basis::Kind::processor);
  EXPECT_THAT(flat(basis.base), ElementsAre(1, 2, 30, 4));
}

// Of samples of less than a millisecond, much is the time of threads that wake up.
TEST(BasisTest, ProcessorTimesOfShortSamplesAreNotCompared) {
  Measurement all_waited = loaded(counted_samples({9}), {0, 1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(basis_of(all_waited, all_waited).kind, Basis::Kind::processor);
  Measurement is_short = all_waited;
  for (double& seconds : is_short.seconds) seconds *= 1e-4;
  for (const auto& [base, now] : {std::pair(is_short, all_waited), {all_waited, is_short}}) {
    std::string why_not;
    EXPECT_FALSE(common_basis(base, now, why_not));
    EXPECT_THAT(why_not, HasSubstr("too short to compare processor times"));
  }
}

TEST(BasisTest, WithoutProcessorTimesOnBothSidesThereIsNone) {
  const Measurement quiet = counted_samples({9});
  Measurement idle = loaded(quiet, {0, 1});
  idle.core_times[3].ran = 0;
  for (const auto& [base, now] :
       {std::pair{quiet, loaded(quiet, {0, 1})}, std::pair{loaded(quiet, {}), idle}}) {
    std::string why_not;
    EXPECT_FALSE(common_basis(base, now, why_not));
    EXPECT_THAT(why_not, HasSubstr("not both sides have processor times"));
  }
}

TEST(BasisTest, LoadWithoutWaitsIsBlind) {
  Measurement blind = counted_samples({9});
  blind.load = Load{.seconds = 1, .cores = 2, .others = 1.5};
  std::string why_not;
  EXPECT_FALSE(common_basis(blind, counted_samples({9}), why_not));
  EXPECT_THAT(why_not, HasSubstr("others used 1.5 of 2 cores, and this machine does not tell"));
}

TEST(BasisTest, EstimatesLeaveOutTheShareThatWasWaited) {
  Measurement measurement = counted_samples({3});
  EXPECT_THAT(estimated_seconds(measurement), ElementsAre(1, 2, 3));  // nothing is known
  measurement.core_times = {{1, 0}, {1, 3}, {0, 5}};
  EXPECT_THAT(estimated_seconds(measurement), ElementsAre(1, 0.5, 3));
  EXPECT_THAT(estimated_seconds({}), IsEmpty());
}

}  // namespace
}  // namespace flashbench
