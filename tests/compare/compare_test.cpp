// Verdicts on results with known times.
#include "compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/error.h"
#include "measure/round_ceilings.h"
#include "recorded_load.h"
#include "sample_sweep.h"

namespace flashbench {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;

constexpr double kBase = 0.01;

Times slower_by(double factor, Times times = {}) {
  times.seconds = kBase * (1 + factor);
  return times;
}

Times of_processes(std::vector<int> processes) {
  Times times;
  times.seconds = kBase;
  times.processes = std::move(processes);
  return times;
}

int count_of(Change change, const Times& base, const Times& now, unsigned seed = 1) {
  return compare(nine_rows(base, seed), nine_rows(now, seed + 1000), {}).count(change);
}

// ---- times

TEST(Compare, UnchangedRowsAreSame) {
  for (const auto& processes : {std::vector{40}, {30, 30, 30}}) {
    EXPECT_EQ(count_of(Change::same, of_processes(processes), of_processes(processes)), 9);
  }
}

TEST(Compare, UnchangedRowsAreNeverSlowerOrFasterInAHundredSweeps) {
  for (const auto& processes : {std::vector{40}, {30, 30}, {30, 30, 30}}) {
    Times loud = of_processes(processes);
    loud.noise = 0.05;
    loud.process_noise = 0.007;
    int sweeps = 0;  // that say anything wrong
    for (unsigned seed = 0; seed < 100; ++seed) {
      sweeps +=
          count_of(Change::slower, loud, loud, seed) + count_of(Change::faster, loud, loud, seed) >
          0;
    }
    EXPECT_LE(sweeps, 1) << processes.size() << " processes";
  }
}

TEST(Compare, ASlowDownIsFoundOnAQuietMachine) {
  const Times one = of_processes({40}), three = of_processes({30, 30, 30});
  EXPECT_EQ(count_of(Change::slower, one, slower_by(0.10, one)), 9);
  EXPECT_EQ(count_of(Change::slower, three, slower_by(0.05, three)), 9);
  EXPECT_EQ(count_of(Change::faster, slower_by(0.05, three), three), 9);
}

TEST(Compare, OneSlowRowAmongManyIsFound) {
  const Times three = of_processes({30, 30, 30});
  const SweepResult base = nine_rows(three, 1);
  SweepResult now = nine_rows(three, 2);
  std::mt19937 random(3);
  now.records[4] = timed_record("tiled", 64 * 5, slower_by(0.1, three), random);
  const Comparison comparison = compare(base, now, {});
  EXPECT_EQ(comparison.count(Change::slower), 1);
  EXPECT_EQ(comparison.rows[4].change, Change::slower);
  EXPECT_NEAR(*comparison.rows[4].ratio, 1.1, 0.01);
  EXPECT_LT(comparison.rows[4].interval->low, 1.1);
  EXPECT_GT(comparison.rows[4].interval->high, 1.1);
  EXPECT_TRUE(comparison.regressed());
}

TEST(Compare, ChangesUpToTheThresholdGetNoVerdict) {
  const Times three = of_processes({30, 30, 30});
  CompareOptions options;
  options.noise_threshold = 0.10;
  const Comparison comparison =
      compare(nine_rows(three, 1), nine_rows(slower_by(0.08, three), 2), options);
  EXPECT_EQ(comparison.count(Change::slower), 0);
  EXPECT_EQ(comparison.count(Change::same), 9);  // SAME then means: within the threshold
}

TEST(Compare, AMachineThatSlowedDownIsNoRegression) {
  Times slow = of_processes({30, 30, 30});
  slow.machine = 1.1;
  const Comparison comparison =
      compare(nine_rows(of_processes({30, 30, 30}), 1), nine_rows(slow, 2), {});
  EXPECT_EQ(comparison.count(Change::inconclusive), 9);
  EXPECT_THAT(comparison.rows[0].reason, HasSubstr("relative to the GEMM"));
}

TEST(Compare, ARegressionBehindAFasterMachineIsNotTheSame) {
  Times hidden = slower_by(0.25, of_processes({30, 30, 30}));
  hidden.machine = 0.8;
  const Comparison comparison =
      compare(nine_rows(of_processes({30, 30, 30}), 1), nine_rows(hidden, 2), {});
  EXPECT_EQ(comparison.count(Change::inconclusive), 9);
  EXPECT_THAT(comparison.rows[0].reason, HasSubstr("+25"));
}

TEST(Compare, OneContaminatedProcessIsNoRegression) {
  const SweepResult base = nine_rows(of_processes({30, 30, 30}), 1);
  SweepResult now = nine_rows(of_processes({30, 30, 30}), 2);
  for (Record& record : now.records) {
    for (size_t i = 60; i < 90; ++i) record.measurement->seconds[i] *= 1.3;
  }
  EXPECT_EQ(compare(base, now, {}).count(Change::slower), 0);
}

TEST(Compare, LoadOnHalfOfTheSamplesIsNoRegression) {
  const SweepResult base = nine_rows(of_processes({40}), 1);
  SweepResult now = nine_rows(of_processes({40}), 2);
  for (Record& record : now.records) {
    for (size_t i = 0; i < 40; i += 2) record.measurement->seconds[i] *= 1.5;
  }
  EXPECT_EQ(compare(base, now, {}).count(Change::slower), 0);
}

// Threads took 33 us to wake in one process and 52 in the next, and each pass wakes them a few
// times: unchanged rows of 0.03 ms took up to 80% longer.
TEST(Compare, AChangeAsSmallAsThatOfALaunchIsInconclusive) {
  const auto sweep = [](double seconds, double launch, unsigned seed) {
    Times times;
    times.seconds = seconds;
    SweepResult result = nine_rows(times, seed);
    Ceiling null_launch;
    null_launch.name = kNullLaunch;
    null_launch.measurement.seconds = {launch, launch, 2 * launch};
    result.records.front().round_ceilings = {null_launch};
    return result;
  };
  const SweepResult base = sweep(32e-6, 33e-6, 1);
  const Comparison slow = compare(base, sweep(58e-6, 52e-6, 2), {});
  EXPECT_EQ(slow.count(Change::inconclusive), 9);
  EXPECT_THAT(slow.rows[3].reason, HasSubstr("null launches took 33 and 52 us"));
  EXPECT_EQ(compare(sweep(58e-6, 52e-6, 2), base, {}).count(Change::inconclusive), 9);
  EXPECT_EQ(compare(base, sweep(58e-6, 33e-6, 2), {}).count(Change::slower), 9);
  EXPECT_EQ(compare(base, sweep(98e-6, 52e-6, 2), {}).count(Change::slower), 9);
}

TEST(Compare, TooFewSamplesAreInconclusive) {
  const Times enough = of_processes({8}), few = of_processes({7});
  for (const auto& [base, now] : {std::pair{enough, few}, {few, enough}}) {
    const Comparison comparison =
        compare(nine_rows(base, 1), nine_rows(slower_by(1.0, now), 2), {});
    EXPECT_EQ(comparison.count(Change::inconclusive), 9);
    EXPECT_THAT(comparison.rows[0].reason, HasSubstr("too few samples"));
    EXPECT_THAT(comparison.rows[0].reason, HasSubstr("at least 8"));
    EXPECT_FALSE(comparison.rows[0].ratio.has_value());
  }
  EXPECT_EQ(count_of(Change::slower, enough, slower_by(1.0, enough)), 9);
}

TEST(Compare, WithoutAnAnchorThereIsNoVerdict) {
  SweepResult base = nine_rows(of_processes({40}), 1), now = nine_rows(slower_by(1.0), 2);
  base.records[3].gemm.reset();
  const Comparison comparison = compare(base, now, {});
  EXPECT_EQ(comparison.rows[3].change, Change::inconclusive);
  EXPECT_THAT(comparison.rows[3].reason, HasSubstr("no GEMM"));
  EXPECT_EQ(comparison.count(Change::slower), 8);
}

// Rows that meet all but one of the conditions of a verdict.

TEST(Compare, OneProcessDoesNotShowSmallChanges) {
  Times one = of_processes({90}), three = of_processes({30, 30, 30});
  for (Times* times : {&one, &three}) times->noise = times->process_noise = 0.0005;
  EXPECT_EQ(count_of(Change::slower, one, slower_by(0.03, one)), 0);
  EXPECT_EQ(count_of(Change::slower, three, slower_by(0.03, three)), 9);
}

TEST(Compare, ProcessesThatAgreeByAccidentAreNotTrustedBeyondTheOtherRows) {
  Times loud = of_processes({30, 30, 30}), quiet = loud;
  loud.process_noise = 0.03;
  quiet.process_noise = quiet.noise = 0.0001;
  SweepResult base = nine_rows(loud, 1), now = nine_rows(loud, 2);
  std::mt19937 random(3);
  base.records[4] = timed_record("tiled", 64 * 5, quiet, random);
  now.records[4] = timed_record("tiled", 64 * 5, slower_by(0.04, quiet), random);
  EXPECT_EQ(compare(base, now, {}).rows[4].change, Change::inconclusive);
}

TEST(Compare, AFastestSampleThatDidNotChangeForbidsAVerdict) {
  const Times three = of_processes({30, 30, 30});
  const SweepResult base = nine_rows(three, 1);
  SweepResult now = nine_rows(slower_by(0.1, three), 2);
  now.records[0].measurement->seconds[50] = kBase * 0.99;
  const Comparison comparison = compare(base, now, {});
  EXPECT_EQ(comparison.rows[0].change, Change::inconclusive);
  EXPECT_THAT(comparison.rows[0].reason, HasSubstr("the fastest sample or the median"));
  EXPECT_EQ(comparison.count(Change::slower), 8);
}

TEST(Compare, SamplesThatOverlapForbidAVerdict) {
  const Times three = of_processes({30, 30, 30});
  SweepResult base = nine_rows(three, 1);
  const SweepResult now = nine_rows(slower_by(0.1, three), 2);
  for (size_t i = 0; i < 90; ++i) {  // nearly half of them
    if (i % 15 < 7) base.records[0].measurement->seconds[i] *= 1.5;
  }
  const Comparison comparison = compare(base, now, {});
  EXPECT_EQ(comparison.rows[0].change, Change::inconclusive);
  EXPECT_EQ(comparison.rows[0].reason, "the samples overlap");
}

TEST(Compare, AnotherOrderOfRowsChangesNoVerdict) {
  const SweepResult base = nine_rows(of_processes({30, 30, 30}), 1);
  SweepResult now = nine_rows(of_processes({30, 30, 30}), 2);
  for (size_t i = 0; i < now.records.size(); ++i) {  // from clear to doubtful
    for (double& seconds : now.records[i].measurement->seconds) {
      seconds *= 1 + 0.01 * static_cast<double>(i);
    }
  }
  const auto verdicts = [](const Comparison& comparison) {
    std::map<std::string, std::pair<Change, double>> by_key;
    for (const RowComparison& row : comparison.rows) by_key[row.item.key()] = {row.change, *row.p};
    return by_key;
  };
  const auto expected = verdicts(compare(base, now, {}));
  std::mt19937 random(5);
  for (int i = 0; i < 5; ++i) {
    SweepResult shuffled_base = base, shuffled = now;
    std::shuffle(shuffled_base.records.begin(), shuffled_base.records.end(), random);
    std::shuffle(shuffled.records.begin(), shuffled.records.end(), random);
    EXPECT_EQ(verdicts(compare(shuffled_base, shuffled, {})), expected);
  }
}

TEST(Compare, ExchangingTheSidesExchangesTheVerdicts) {
  const Times three = of_processes({30, 30, 30});
  const SweepResult a = nine_rows(three, 1), b = nine_rows(slower_by(0.04, three), 2);
  const Comparison forth = compare(a, b, {}), back = compare(b, a, {});
  EXPECT_GT(forth.count(Change::slower), 0);
  EXPECT_EQ(forth.count(Change::slower), back.count(Change::faster));
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(*forth.rows[i].ratio * *back.rows[i].ratio, 1, 1e-12);
  }
}

TEST(Compare, MeanRatiosAreGeometricAndByProvider) {
  std::mt19937 random(1);
  Times exact = of_processes({10});
  exact.noise = exact.process_noise = 0;
  const auto record = [&](const char* provider, int q_len, double factor) {
    return timed_record(provider, q_len, slower_by(factor - 1, exact), random);
  };
  const Comparison comparison = compare(
      sweep_of({record("tiled", 64, 1), record("tiled", 128, 1), record("naive", 64, 1)}),
      sweep_of({record("tiled", 64, 2), record("tiled", 128, 8), record("naive", 64, 3)}), {});
  const auto means = comparison.mean_ratios();
  ASSERT_EQ(means.size(), 2u);
  EXPECT_NEAR(means.at("tiled").ratio, 4, 1e-9);
  EXPECT_EQ(means.at("tiled").rows, 2);
  EXPECT_NEAR(means.at("naive").ratio, 3, 1e-9);
}

// ---- beside load

// Threads that share a core for a whole sweep make each of its samples twice as long, and equally
// so in each process. No test of samples or of processes can tell that from a change of the
// program.
TEST(Compare, ASweepThatHadToWaitThroughoutIsNeitherSlowerNorFaster) {
  const Times three = of_processes({30, 30, 30});
  const Neighbour waits{.share = 1, .wait = 1, .threads = 2};
  const SweepResult quiet = alone(2, nine_rows(three, 1)),
                    waited = beside(waits, nine_rows(three, 2));
  for (const auto& [base, now] : {std::pair{&quiet, &waited}, {&waited, &quiet}}) {
    const Comparison comparison = compare(*base, *now, {});
    EXPECT_EQ(comparison.count(Change::inconclusive), 9);
    EXPECT_EQ(comparison.rows[0].basis, Basis::Kind::processor);
    EXPECT_THAT(comparison.rows[0].needs, HasSubstr("cores to spare"));
    EXPECT_THAT(comparison.rows[0].load, Contains(HasSubstr("0 of 90 samples undisturbed")));
    EXPECT_THAT(comparison.rows[0].load, Contains("processor times are compared"));
  }
}

// One of several rows; the others did not change.
TEST(Compare, TheRecordedSweepsBesideLoadAreNeitherSlowerNorFaster) {
  const Times three = of_processes({30, 30, 30});
  SweepResult first = nine_rows(three, 1), second = nine_rows(three, 2);
  first.records[0].measurement = recorded_naive_first();
  first.records[0].gemm = recorded_gemm_first();
  second.records[0].measurement = recorded_naive_second();
  second.records[0].gemm = recorded_gemm_second();
  EXPECT_EQ(compare(first, second, {}).rows[0].change, Change::inconclusive);
  EXPECT_EQ(compare(second, first, {}).rows[0].change, Change::inconclusive);

  // The earlier basis: clock times of all samples.
  for (SweepResult* sweep : {&first, &second}) {
    for (auto* measurement : {&sweep->records[0].measurement, &sweep->records[0].gemm}) {
      (*measurement)->load.reset();
    }
  }
  EXPECT_EQ(compare(first, second, {}).rows[0].change, Change::slower);
  EXPECT_EQ(compare(second, first, {}).rows[0].change, Change::faster);
}

TEST(Compare, BesideLoadUndisturbedSamplesAreCompared) {
  const Times three = of_processes({30, 30, 30});
  const Neighbour half;
  const SweepResult base = beside(half, nine_rows(three, 1), 3);
  EXPECT_EQ(compare(base, beside(half, nine_rows(three, 2), 4), {}).count(Change::same), 9);
  const Comparison comparison =
      compare(base, beside(half, nine_rows(slower_by(0.1, three), 2), 4), {});
  EXPECT_EQ(comparison.count(Change::slower), 9);
  EXPECT_EQ(comparison.rows[0].basis, Basis::Kind::undisturbed);
  EXPECT_NEAR(*comparison.rows[0].ratio, 1.1, 0.01);
  EXPECT_THAT(comparison.rows[0].load, Contains("undisturbed samples are compared"));
  EXPECT_GT(comparison.rows[0].now_undisturbed, 30u);
  EXPECT_LT(comparison.rows[0].now_undisturbed, 60u);
}

TEST(Compare, WhereAllSamplesWaitedProcessorTimeShowsLargeChanges) {
  const Times three = of_processes({30, 30, 30});
  const Neighbour waits{.share = 1, .wait = 1};
  const SweepResult base = beside(waits, nine_rows(three, 1), 3);
  const Comparison slower =
      compare(base, beside(waits, nine_rows(slower_by(0.2, three), 2), 4), {});
  EXPECT_EQ(slower.count(Change::slower), 9);
  EXPECT_EQ(slower.rows[0].basis, Basis::Kind::processor);
  const Comparison little =
      compare(base, beside(waits, nine_rows(slower_by(0.05, three), 2), 4), {});
  EXPECT_EQ(little.count(Change::inconclusive), 9);
}

TEST(Compare, BesideLoadTheGemmMayHaveOneSample) {
  const Times one = of_processes({30});
  const Neighbour waits{.share = 1, .wait = 1};
  SweepResult base = beside(waits, nine_rows(one, 1)),
              now = beside(waits, nine_rows(slower_by(1, one), 2));
  for (SweepResult* sweep : {&base, &now}) {
    for (Record& record : sweep->records) {
      record.gemm->seconds.resize(1);
      record.gemm->core_times.resize(1);
    }
  }
  EXPECT_EQ(compare(base, now, {}).count(Change::slower), 9);
}

TEST(Compare, MoreProcessorTimeInLessTimeIsNotSlower) {
  const Times three = of_processes({30, 30, 30});
  Times halved = three;
  halved.seconds /= 1.5;  // on two threads: a third more processor time
  const Neighbour one{.share = 1, .wait = 1}, two{.share = 1, .wait = 1, .threads = 2};
  const Comparison comparison =
      compare(beside(one, nine_rows(three, 1)), beside(two, nine_rows(halved, 2)), {});
  EXPECT_EQ(comparison.count(Change::inconclusive), 9);
}

TEST(Compare, UnchangedRowsBesideLoadAreNeverSlowerOrFasterInAHundredSweeps) {
  const Times three = of_processes({30, 30, 30});
  for (const Neighbour& neighbour :
       {Neighbour{}, {.share = 0.9, .wait = 3}, {.share = 1, .wait = 1, .threads = 2}}) {
    int sweeps = 0;  // that say anything wrong
    for (unsigned seed = 0; seed < 100; ++seed) {
      const SweepResult base = nine_rows(three, seed), now = nine_rows(three, seed + 1000);
      for (const Comparison& comparison :
           {compare(beside(neighbour, base, seed), beside(neighbour, now, seed + 500), {}),
            compare(alone(neighbour.threads, base), beside(neighbour, now, seed), {})}) {
        sweeps += comparison.count(Change::slower) + comparison.count(Change::faster) > 0;
      }
    }
    EXPECT_LE(sweeps, 2) << neighbour.share;
  }
}

TEST(Compare, LoadWithoutKnownWaitsForbidsAVerdict) {
  const Times three = of_processes({30, 30, 30});
  SweepResult now = beside({}, nine_rows(slower_by(1.0, three), 2));
  for (Record& record : now.records) record.measurement->core_times.clear();
  const Comparison comparison = compare(nine_rows(three, 1), now, {});
  EXPECT_EQ(comparison.count(Change::inconclusive), 9);
  EXPECT_THAT(comparison.rows[0].reason,
              HasSubstr("does not tell which samples waited for a core"));
}

TEST(Compare, AnInconclusiveRowSaysWhatItWouldTake) {
  Times loud = of_processes({30, 30, 30});
  loud.process_noise = 0.015;
  const Comparison comparison =
      compare(nine_rows(loud, 1), nine_rows(slower_by(0.03, loud), 2), {});
  EXPECT_THAT(
      comparison.rows,
      Contains(AllOf(Field(&RowComparison::change, Change::inconclusive),
                     Field(&RowComparison::needs, HasSubstr("repetitions on both sides")))));
  const Times one = of_processes({40});
  EXPECT_THAT(compare(nine_rows(one, 1), nine_rows(slower_by(0.03, one), 2), {}).rows[0].needs,
              HasSubstr("--repetitions 3"));
  const Times few = of_processes({4});
  EXPECT_THAT(compare(nine_rows(few, 1), nine_rows(few, 2), {}).rows[0].needs,
              HasSubstr("--timeout or --max-samples"));
}

// ---- statuses

// The change of a row from status `before` to `after`; no status: no row.
std::pair<Change, std::string> change_between(std::optional<Status> before,
                                              std::optional<Status> after) {
  const auto result = [](std::optional<Status> status, unsigned seed) {
    SweepResult sweep = nine_rows({}, seed);
    Record& record = sweep.records[0];
    if (!status) {
      sweep.records.erase(sweep.records.begin());
    } else if (*status != Status::ok) {
      record.status = *status;
      record.reason = "because";
      record.verdict = {};
      record.measurement.reset();
      record.gemm.reset();
    }
    return sweep;
  };
  const Comparison comparison = compare(result(before, 1), result(after, 2), {});
  const std::string key = nine_rows({}, 1).records[0].item.key();
  for (const RowComparison& row : comparison.rows) {
    if (row.item.key() == key) return {row.change, row.reason};
  }
  return {Change::untimed, "no such row"};
}

TEST(Compare, WhatVerifiedAndNoLongerDoesIsNewlyWrong) {
  for (Status wrong :
       {Status::failed, Status::crashed, Status::timeout, Status::error, Status::out_of_memory}) {
    const auto [change, reason] = change_between(Status::ok, wrong);
    EXPECT_EQ(change, Change::newly_wrong);
    EXPECT_EQ(reason, std::string(name(wrong)) + ": because");
    EXPECT_EQ(change_between(wrong, Status::ok).first, Change::fixed);
    EXPECT_EQ(change_between(wrong, wrong).first, Change::untimed);
  }
}

// The comparison of the first row, which passed before and is coarse now.
RowComparison change_to_coarse(std::optional<double> rel_rms_before) {
  SweepResult base = nine_rows({}, 1), now = nine_rows({}, 2);
  base.records[0].verdict.tensors = {
      {.tensor = "dq", .passed = true, .rel_rms_err = rel_rms_before}};
  now.records[0].verdict.tensors = {{.tensor = "dq", .passed = true, .rel_rms_err = 3.8}};
  now.records[0].verdict.coarse = "dq is far off";
  return compare(base, now, {}).rows.at(0);
}

TEST(Compare, WhatPassedAndIsCoarseIsNewlyWrong) {
  const RowComparison row = change_to_coarse(0.05);
  EXPECT_EQ(row.change, Change::newly_wrong);
  EXPECT_EQ(row.reason, "coarse: dq is far off");
}

TEST(Compare, ABaseThatTellsNoRootMeanSquareCannotSayThatCoarseIsNew) {
  EXPECT_NE(change_to_coarse(std::nullopt).change, Change::newly_wrong);
}

TEST(Compare, GemmsOfAnotherSizeAreComparedForEachFlop) {
  SweepResult now = nine_rows(of_processes({30, 30, 30}), 2);
  for (Record& record : now.records) {
    record.gemm_flops *= 8;
    for (double& seconds : record.gemm->seconds) seconds *= 8;
  }
  const Comparison comparison = compare(nine_rows(of_processes({30, 30, 30}), 1), now, {});
  EXPECT_EQ(comparison.count(Change::same), 9);
}

TEST(Compare, RowsOfOneSideAreNewOrMissing) {
  EXPECT_EQ(change_between(std::nullopt, Status::ok).first, Change::added);
  EXPECT_EQ(change_between(Status::ok, std::nullopt).first, Change::missing);
  for (Status absent : {Status::unsupported, Status::skipped}) {
    EXPECT_EQ(change_between(Status::ok, absent).first, Change::missing);
    EXPECT_EQ(change_between(absent, Status::ok).first, Change::added);
    EXPECT_EQ(change_between(absent, absent).first, Change::untimed);
    EXPECT_EQ(change_between(absent, Status::failed).first, Change::added);
    EXPECT_EQ(change_between(Status::failed, absent).first, Change::missing);
  }
}

TEST(Compare, OnlySlowerAndNewlyWrongAreRegressions) {
  for (Change change : kChanges) {
    Comparison comparison;
    comparison.rows.resize(1);
    comparison.rows[0].change = change;
    EXPECT_EQ(comparison.regressed(), change == Change::slower || change == Change::newly_wrong)
        << name(change);
  }
}

TEST(Compare, VerifiedRowsWithoutTimesAreUntimed) {
  SweepResult base = nine_rows({}, 1), now = nine_rows({}, 2);
  base.records[0].measurement.reset();
  EXPECT_EQ(compare(base, now, {}).rows[0].change, Change::untimed);
}

TEST(Compare, NothingInCommonIsAnError) {
  std::mt19937 random(1);
  const SweepResult base = sweep_of({timed_record("tiled", 64, {}, random)});
  EXPECT_THROW(compare(base, sweep_of({timed_record("naive", 64, {}, random)}), {}), BaselineError);
  EXPECT_THROW(compare(base, sweep_of({timed_record("tiled", 65, {}, random)}), {}), BaselineError);
  EXPECT_THROW(compare(sweep_of({}), sweep_of({}), {}), BaselineError);
}

}  // namespace
}  // namespace flashbench
