#include "compare/evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "sample_sweep.h"

namespace flashbench {
namespace {

using testing::HasSubstr;

// n times around `seconds`, in a fixed order without a trend.
std::vector<double> times_around(double seconds, size_t n) {
  std::vector<double> times;
  for (size_t i = 0; i < n; ++i) {
    times.push_back(seconds * (1 + 0.001 * static_cast<double>(i * 7 % 11)));
  }
  return times;
}

Measurement measured(std::vector<double> seconds, std::vector<int> processes = {}) {
  Measurement measurement{std::move(seconds), 0, CacheState::warm, "max_samples"};
  measurement.samples_per_process = std::move(processes);
  return measurement;
}

// A row of `n` samples, and a GEMM that takes the same on all rows.
Record row_of_samples(double seconds, size_t n = 40, const std::vector<int>& processes = {}) {
  Record record;
  record.measurement = measured(times_around(seconds, n), processes);
  record.gemm = measured(times_around(0.02, n), processes);
  record.gemm_flops = 1e9;
  return record;
}

// Others used the cores, and these samples waited for one.
void disturb_samples(Measurement& measurement, const std::vector<size_t>& waited) {
  measurement.load = Load{.seconds = 1, .cores = 2, .others = 1.5};
  measurement.core_times.clear();
  for (double seconds : measurement.seconds) measurement.core_times.push_back({seconds, 0});
  for (size_t i : waited) {
    measurement.core_times[i].waited = measurement.seconds[i];
    measurement.seconds[i] *= 2;
  }
}

std::vector<size_t> first_samples(size_t n) {
  std::vector<size_t> result(n);
  std::iota(result.begin(), result.end(), 0);
  return result;
}

Evidence evidence_of(const Record& base, const Record& now) {
  std::string why_not;
  const auto evidence = gather_evidence(base, now, why_not);
  EXPECT_TRUE(evidence) << why_not;
  return evidence.value_or(Evidence{});
}

std::string why_no_evidence(const Record& base, const Record& now) {
  std::string why_not;
  EXPECT_FALSE(gather_evidence(base, now, why_not));
  return why_not;
}

// ---- when there is none

TEST(EvidenceTest, EightSamplesOfEachSideAreEnough) {
  const Record eight = row_of_samples(1, 8), seven = row_of_samples(1, 7);
  evidence_of(eight, eight);
  EXPECT_EQ(why_no_evidence(seven, eight),
            "too few samples: 7 and 8, at least 8 of each are needed");
  EXPECT_EQ(why_no_evidence(eight, seven),
            "too few samples: 8 and 7, at least 8 of each are needed");
}

TEST(EvidenceTest, WithoutAnAnchorOnBothSidesThereIsNone) {
  const Record whole = row_of_samples(1);
  Record absent = whole, empty = whole;
  absent.gemm.reset();
  empty.gemm->seconds.clear();
  for (const Record& without : {absent, empty}) {
    EXPECT_THAT(why_no_evidence(without, whole), HasSubstr("no GEMM was timed"));
    EXPECT_THAT(why_no_evidence(whole, without), HasSubstr("no GEMM was timed"));
  }
}

TEST(EvidenceTest, WhereOneCannotTellWhichSamplesWaitedThereIsNone) {
  const Record quiet = row_of_samples(1);
  Record row = quiet, gemm = quiet;
  row.measurement->load = gemm.gemm->load = Load{.seconds = 1, .cores = 2, .others = 1.5};
  for (const Record& blind : {row, gemm}) {
    EXPECT_THAT(why_no_evidence(quiet, blind), HasSubstr("does not tell which samples waited"));
  }
}

// ---- what is compared

TEST(EvidenceTest, ChangesAreLogarithmsOfTheTimesRatio) {
  const Evidence evidence = evidence_of(row_of_samples(1), row_of_samples(1.5));
  const double change = std::log(1.5);
  EXPECT_EQ(evidence.basis.kind, Basis::Kind::samples);
  EXPECT_NEAR(evidence.change, change, 1e-12);
  EXPECT_NEAR(evidence.anchored_change, change, 1e-12);
  EXPECT_NEAR(evidence.min_change, change, 1e-12);
  EXPECT_NEAR(evidence.median_change, change, 1e-12);
  EXPECT_NEAR(evidence.estimated_change, change, 1e-12);
  EXPECT_EQ(evidence.anchor_error, 0);
}

TEST(EvidenceTest, TheLowerQuartileIsInterpolated) {
  // One process of 8 samples: four units of two. Their lower quartile is at a quarter of the way.
  Record base = row_of_samples(1, 8), now = base;
  base.measurement->seconds.assign(8, 1.0);
  now.measurement->seconds = {1, 5, 5, 1, 1, 5, 5, 1};
  EXPECT_NEAR(evidence_of(base, now).change, std::log(2.0), 1e-12);
  EXPECT_EQ(evidence_of(base, now).min_change, 0);
  EXPECT_NEAR(evidence_of(base, now).median_change, std::log(3.0), 1e-12);
}

TEST(EvidenceTest, ASlowerMachineIsNoChangeInUnitsOfTheAnchor) {
  const Record base = row_of_samples(1);
  Record now = row_of_samples(1.2);
  for (double& seconds : now.gemm->seconds) seconds *= 1.2;
  EXPECT_NEAR(evidence_of(base, now).change, std::log(1.2), 1e-12);
  EXPECT_NEAR(evidence_of(base, now).anchored_change, 0, 1e-12);
}

TEST(EvidenceTest, AnAnchorOfAnotherSizeCountsByItsFlops) {
  const Record base = row_of_samples(1);
  Record now = base;
  for (double& seconds : now.gemm->seconds) seconds *= 8;
  now.gemm_flops *= 8;
  EXPECT_NEAR(evidence_of(base, now).anchored_change, 0, 1e-12);
}

// ---- units

TEST(EvidenceTest, UnitsAreProcessesWhereBothSidesHaveSeveral) {
  const Record three = row_of_samples(1, 30, {10, 10, 10}), two = row_of_samples(1, 30, {20, 10});
  const Evidence evidence = evidence_of(three, two);
  EXPECT_TRUE(evidence.by_process);
  EXPECT_EQ(evidence.base_units, 3u);
  EXPECT_EQ(evidence.now_units, 2u);
  EXPECT_EQ(evidence.degrees_of_freedom, 3);
}

TEST(EvidenceTest, UnitsAreQuartersOfEachProcessWhereASideHasOne) {
  const Record three = row_of_samples(1, 30, {10, 10, 10}), one = row_of_samples(1, 30);
  for (const auto& [base, now] : {std::pair{three, one}, {one, three}}) {
    EXPECT_FALSE(evidence_of(base, now).by_process);
    EXPECT_EQ(evidence_of(base, now).degrees_of_freedom, 14);
  }
  EXPECT_EQ(evidence_of(three, one).base_units, 12u);
  EXPECT_EQ(evidence_of(three, one).now_units, 4u);
}

TEST(EvidenceTest, AProcessOfFewerSamplesThanQuartersHasAUnitForEach) {
  const Record few = row_of_samples(1, 8, {6, 2}), one = row_of_samples(1, 8);
  EXPECT_EQ(evidence_of(few, one).base_units, 6u);
}

TEST(EvidenceTest, TheErrorIsThatOfTheDifferenceOfMeansOverUnits) {
  Record base = row_of_samples(1, 30, {10, 10, 10}), now = row_of_samples(1, 20, {10, 10});
  const auto set = [](Record& record, const std::vector<double>& processes) {
    for (size_t i = 0; i < record.measurement->seconds.size(); ++i) {
      record.measurement->seconds[i] = std::exp(processes[i / 10]);
    }
  };
  set(base, {0, 1, 2});  // sum of squares 2
  set(now, {3, 5});      // also 2
  const Evidence evidence = evidence_of(base, now);
  EXPECT_NEAR(evidence.change, 3, 1e-12);
  EXPECT_NEAR(evidence.standard_error, std::sqrt(2.0 / 2 / 3 + 2.0 / 1 / 2), 1e-12);
  EXPECT_NEAR(evidence.unit_variance, 4.0 / 3, 1e-12);
}

TEST(EvidenceTest, ProcessesThatAgreeHaveNoError) {
  Record same = row_of_samples(1, 20, {10, 10});
  same.measurement->seconds.assign(20, 0.5);
  EXPECT_EQ(evidence_of(same, same).standard_error, 0);
}

// ---- under load

TEST(EvidenceTest, WaitsAreLeftOut) {
  const Record base = row_of_samples(1, 16);
  Record now = base;
  disturb_samples(*now.measurement, first_samples(8));
  const Evidence evidence = evidence_of(base, now);
  EXPECT_EQ(evidence.basis.kind, Basis::Kind::undisturbed);
  EXPECT_EQ(flat(evidence.basis.now).size(), 8u);
  EXPECT_NEAR(evidence.min_change, 0, 0.01);
  EXPECT_NEAR(evidence.median_change, 0, 0.01);
  EXPECT_EQ(evidence.anchor_error, 0);
}

TEST(EvidenceTest, OfTooFewUndisturbedSamplesProcessorTimesAreCompared) {
  Record base = row_of_samples(1, 16);
  Record now = base;
  disturb_samples(*base.measurement, {});
  disturb_samples(*now.measurement, first_samples(9));
  const Evidence evidence = evidence_of(base, now);
  EXPECT_EQ(evidence.basis.kind, Basis::Kind::processor);
  EXPECT_NEAR(evidence.change, 0, 1e-12);
  EXPECT_NEAR(evidence.estimated_change, 0, 1e-12);
}

TEST(EvidenceTest, OfProcessorTimesALowerQuantileIsCompared) {
  Record base = row_of_samples(1, 20, {10, 10});
  base.measurement->seconds.assign(20, 1.0);
  Record now = base;
  disturb_samples(*base.measurement, {});
  disturb_samples(*now.measurement, first_samples(20));
  for (size_t i = 0; i < 20; ++i) {  // a quarter and more of the samples of each process
    if (i % 10 >= 2) now.measurement->core_times[i].ran = 3;
  }
  EXPECT_NEAR(evidence_of(base, now).change, 0, 1e-12);
}

TEST(EvidenceTest, AnAnchorUnderLoadBringsAnErrorOfItsOwn) {
  const Record base = row_of_samples(1, 16);
  Record now = base;
  disturb_samples(*now.gemm, first_samples(8));
  EXPECT_GT(evidence_of(base, now).anchor_error, 0);

  // A GEMM that was timed once has no spread; the error is then the row's.
  Record base_once = base, now_once = base;
  for (Record* once : {&base_once, &now_once}) {
    once->gemm = measured({0.02});
    disturb_samples(*once->gemm, {0});
  }
  const Evidence evidence = evidence_of(base_once, now_once);
  EXPECT_GT(evidence.anchor_error, 0);
  EXPECT_EQ(evidence.anchor_error, evidence.standard_error);
}

// ---- the rank test

TEST(EvidenceTest, TheRankTestRaisesTheFastSideByTheThreshold) {
  const Basis::Times base{times_around(1, 10), times_around(1, 10)};
  const Basis::Times now{times_around(1.05, 10), times_around(1.05, 10)};
  EXPECT_LT(rank_test(base, now, 0), 0.001);
  EXPECT_LT(rank_test(base, now, 0.03), 0.001);
  EXPECT_NEAR(rank_test(base, now, 0.05), 0.5, 0.05);
  EXPECT_GT(rank_test(base, now, 0.10), 0.999);
  EXPECT_GT(rank_test(now, base, 0), 0.999);
}

}  // namespace
}  // namespace flashbench
