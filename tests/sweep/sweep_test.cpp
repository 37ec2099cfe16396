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

SweepResult run(const std::vector<const Provider*>& providers, SweepOptions options = {}) {
  const auto device = make_host_device(1);
  const SweepConfig config = two_cases();
  options.cases.measure = config.measure;
  Progress progress(stderr, Progress::Mode::quiet, 2, 1);
  return run_sweep(config, providers, *device, progress, options);
}

TEST(Sweep, EveryPlannedRowIsThere) {
  const SweepResult result = run(choose_providers({}, DeviceKind::cpu));
  EXPECT_EQ(result.records.size(), 2 * choose_providers({}, DeviceKind::cpu).size());
  EXPECT_EQ(result.ceilings.size(), 3u);
  EXPECT_EQ(exit_code(result), 0);
  EXPECT_EQ(to_json(result_from_json(to_json(result), "memory")), to_json(result));
}

TEST(Sweep, EveryPlannedRowIsThereWhenInterrupted) {
  SweepOptions options;
  options.cases.interrupted = [] { return true; };
  const SweepResult result = run(choose_providers({}, DeviceKind::cpu), options);
  EXPECT_EQ(result.records.size(), 2 * choose_providers({}, DeviceKind::cpu).size());
  for (const Record& record : result.records) EXPECT_EQ(record.status, Status::skipped);
}

TEST(Sweep, TheExitCodeIsTheWorstThatHappened) {
  const FakeProvider wrong(
      [](const Inputs&, const Outputs& out, int) { static_cast<float*>(out.o.data)[0] += 1; });
  const FakeProvider throwing(
      [](const Inputs&, const Outputs&, int) { throw std::runtime_error("broken"); });
  EXPECT_EQ(exit_code(run({&wrong})), 3);
  EXPECT_EQ(exit_code(run({&throwing})), 4);
  EXPECT_EQ(exit_code(run({&throwing, &wrong})), 3);
}

}  // namespace
}  // namespace flashbench
