#include "sweep/sweep.h"

#include <gtest/gtest.h>

#include "report/json.h"
#include "tests/case/fake_provider.h"

namespace flashbench {
namespace {

SweepConfig two_cases() {
  return parse_config(R"({
    "schema_version": 1, "name": "two",
    "measure": {"warmup_runs": 0, "warmup_seconds": 0, "min_samples": 2, "max_samples": 2},
    "cases": [{"seq": [8, 16], "q_heads": 1, "head_dim": 8}]
  })",
                      "test", {});
}

SweepOutcome run(const std::vector<const Provider*>& providers, SweepOptions options = {}) {
  const SweepConfig config = two_cases();
  options.cases.measure = config.measure;
  const auto runner = make_local_runner(make_host_device(1), providers, Watch{options.interrupted});
  Progress progress(stderr, Progress::Mode::quiet);
  return run_sweep(config, *runner, nullptr, progress, options);
}

TEST(Sweep, EveryPlannedRowIsThere) {
  const SweepOutcome outcome = run(choose_providers({}, DeviceKind::cpu));
  const SweepResult& result = outcome.result;
  EXPECT_EQ(result.records.size(), 2 * choose_providers({}, DeviceKind::cpu).size());
  EXPECT_EQ(result.ceilings.size(), 4u);
  EXPECT_FALSE(outcome.stopped);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(to_json(result_from_json(to_json(result), "memory")), to_json(result));
}

TEST(Sweep, EveryPlannedRowIsThereWhenInterrupted) {
  SweepOptions options;
  options.interrupted = [] { return true; };
  const SweepOutcome outcome = run(choose_providers({}, DeviceKind::cpu), options);
  EXPECT_EQ(outcome.result.records.size(), 2 * choose_providers({}, DeviceKind::cpu).size());
  for (const Record& record : outcome.result.records) EXPECT_EQ(record.status, Status::skipped);
  EXPECT_EQ(outcome.stopped, "interrupted");
}

TEST(Sweep, TheExitCodeIsTheWorstThatHappened) {
  const FakeProvider wrong(
      [](const Inputs&, const Outputs& out, int) { static_cast<float*>(out.o.data)[0] += 1; },
      "wrong");
  const FakeProvider throwing(
      [](const Inputs&, const Outputs&, int) { throw std::runtime_error("broken"); }, "throwing");
  EXPECT_EQ(run({&wrong}).exit_code, 3);
  EXPECT_EQ(run({&throwing}).exit_code, 4);
  EXPECT_EQ(run({&throwing, &wrong}).exit_code, 3);
}

TEST(Sweep, WhatWasLeftOutIsNoSuccess) {
  SweepConfig config = two_cases();
  config.cases.front().problem.kv_len = int64_t{1} << 40;  // too large for memory
  SweepOptions options;
  options.cases.time = false;
  const auto runner =
      make_local_runner(make_host_device(1), choose_providers({}, DeviceKind::cpu), Watch{});
  Progress progress(stderr, Progress::Mode::quiet);
  const SweepOutcome outcome = run_sweep(config, *runner, nullptr, progress, options);
  EXPECT_EQ(outcome.result.records.front().status, Status::skipped);
  EXPECT_FALSE(outcome.ended_well);
  EXPECT_EQ(outcome.exit_code, 4);
}

// A runner on the host whose device has counters.
class CountingRunner final : public Runner {
 public:
  explicit CountingRunner(std::vector<const Provider*> providers)
      : runner_(make_local_runner(make_host_device(1), std::move(providers), Watch{})) {}

  nlohmann::ordered_json device() const override { return runner_->device(); }
  std::vector<std::string> providers() const override { return runner_->providers(); }
  std::vector<Ceiling> ceilings(const MeasureOptions& o) override { return runner_->ceilings(o); }
  std::vector<Record> run(const Case& item, const std::vector<std::string>& names,
                          const CaseRunOptions& options) override {
    return runner_->run(item, names, options);
  }
  std::string describe(const std::string& provider) override { return runner_->describe(provider); }
  CounterState counters() override {
    ++asked_;
    return state_;
  }
  std::vector<CounterReport> count(const Case&, const std::vector<std::string>& names,
                                   const CaseRunOptions&) override {
    if (breaks_) throw std::runtime_error("the profiler broke");
    std::vector<CounterReport> reports;
    for (const std::string& provider : names) {
      reports.push_back({.state = state_, .run = {{provider, 1}}});
    }
    return reports;
  }

  CounterState state_{.status = CounterStatus::ok};
  bool breaks_ = false;
  int asked_ = 0;

 private:
  std::unique_ptr<Runner> runner_;
};

class SweepCounters : public testing::Test {
 protected:
  std::vector<Record> sweep(CounterMode mode) {
    const SweepConfig config = two_cases();
    SweepOptions options;
    options.cases.measure = config.measure;
    options.cases.measure.counters = mode;
    options.ceilings = false;
    Progress progress(stderr, Progress::Mode::quiet);
    return run_sweep(config, runner_, nullptr, progress, options).result.records;
  }

  const Provider& right_ = FakeProvider::real(DeviceKind::cpu);
  const FakeProvider wrong_{
      [](const Inputs&, const Outputs& out, int) { static_cast<float*>(out.o.data)[0] += 1; },
      "wrong"};
  CountingRunner runner_{{&wrong_, &right_}};
};

TEST_F(SweepCounters, AreThoseOfEveryRowThatWasTimed) {
  const auto records = sweep(CounterMode::automatic);
  ASSERT_EQ(records.size(), 4u);
  for (const Record& record : records) {
    ASSERT_EQ(record.counters.has_value(), record.status == Status::ok) << record.provider;
    if (record.counters) {
      EXPECT_EQ(record.counters->run.at(0).first, record.provider);
    }
  }
  EXPECT_EQ(runner_.asked_, 1);
}

TEST_F(SweepCounters, ThatBreakCostARowNothingElse) {
  runner_.breaks_ = true;
  const Record record = sweep(CounterMode::automatic).at(1);
  EXPECT_EQ(record.status, Status::ok);
  EXPECT_TRUE(record.measurement);
  EXPECT_EQ(record.counters->state.status, CounterStatus::failed);
  EXPECT_EQ(record.counters->state.reason, "the profiler broke");
}

TEST_F(SweepCounters, ThatCannotBeReadAreNamedInEveryRow) {
  runner_.state_ = {.status = CounterStatus::denied, .code = 35, .reason = "not allowed"};
  const Record record = sweep(CounterMode::automatic).at(1);
  EXPECT_EQ(record.counters->state.status, CounterStatus::denied);
  EXPECT_EQ(record.counters->state.code, 35);
  EXPECT_FALSE(measured_bytes(*record.counters));
}

TEST_F(SweepCounters, ThatAreDemandedAndCannotBeReadStopItBeforeItBegins) {
  runner_.state_ = {.status = CounterStatus::denied, .code = 35, .reason = "not allowed"};
  try {
    sweep(CounterMode::on);
    FAIL() << "nothing was thrown";
  } catch (const NoDevice& error) {
    EXPECT_STREQ(error.what(), "hardware counters cannot be read (denied): not allowed");
  }
}

TEST_F(SweepCounters, ThatAreSwitchedOffAreNotAskedFor) {
  const Record record = sweep(CounterMode::off).at(1);
  EXPECT_EQ(record.counters->state.status, CounterStatus::off);
  EXPECT_EQ(record.counters->state.reason, "switched off");
  EXPECT_EQ(runner_.asked_, 0);
}

}  // namespace
}  // namespace flashbench
