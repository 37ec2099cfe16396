// A comparison with a row of every kind, for tests of its presentations.
#pragma once

#include "compare/compare.h"
#include "sample_sweep.h"

namespace flashbench {

struct SampleComparison {
  NamedResult base, now;
  Comparison comparison;
};

// Rows 0 to 7: slower, faster, too few samples, failed now, crashed in the base, new, unchanged;
// the last is missing. The compilers differ.
inline SampleComparison sample_comparison() {
  Times three{.processes = {30, 30, 30}};
  SweepResult base = nine_rows(three, 1), now = nine_rows(three, 2);
  for (double& seconds : now.records[0].measurement->seconds) seconds *= 1.5;
  for (double& seconds : now.records[1].measurement->seconds) seconds /= 1.5;
  now.records[2].measurement->seconds.resize(5);
  now.records[2].measurement->samples_per_process = {2, 2, 1};
  const auto end = [](Record& record, Status status) {
    record.status = status;
    record.reason = "it is | wrong";
    record.measurement.reset();
  };
  end(now.records[3], Status::failed);
  end(base.records[4], Status::crashed);
  base.records.erase(base.records.begin() + 5);
  now.records.erase(now.records.begin() + 6);
  base.meta["compiler"] = "GNU 11";
  CompareOptions options;
  options.allow_different = {"compiler"};
  Comparison comparison = compare(base, now, options, "old.json", "new.json");
  return {{"old.json", std::move(base)}, {"new.json", std::move(now)}, std::move(comparison)};
}

}  // namespace flashbench
