#include "sweep/sweep.h"

#include <gtest/gtest.h>

#include "fake_provider.h"
#include "report/json.h"

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
  Progress progress(stderr, Progress::Mode::quiet, 2, 1);
  return run_sweep(config, *runner, nullptr, progress, options);
}

TEST(Sweep, EveryPlannedRowIsThere) {
  const SweepOutcome outcome = run(choose_providers({}, DeviceKind::cpu));
  const SweepResult& result = outcome.result;
  EXPECT_EQ(result.records.size(), 2 * choose_providers({}, DeviceKind::cpu).size());
  EXPECT_EQ(result.ceilings.size(), 3u);
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

}  // namespace
}  // namespace flashbench
