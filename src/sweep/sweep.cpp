#include "sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "report/cells.h"
#include "report/environment.h"
#include "sweep/interrupt.h"

namespace flashbench {

namespace {

constexpr double kCeilingSeconds = 1;  // each, at most, before a sweep; `info` takes its time

std::vector<Ceiling> ceilings_before_sweep(Device& device, const CaseRunOptions& options) {
  MeasureOptions measure = options.measure;
  measure.max_seconds = std::min(measure.max_seconds, kCeilingSeconds);
  return measure_ceilings(device, measure, options.interrupted);
}

}  // namespace

SweepResult run_sweep(const SweepConfig& config, const std::vector<const Provider*>& providers,
                      Device& device, Progress& progress, const SweepOptions& options) {
  SweepResult result;
  result.meta = meta_json(options.argv);
  result.devices = nlohmann::ordered_json::array({device_json(device)});
  result.config = config.json;

  std::unique_ptr<GemmCeiling> gemm;
  if (options.cases.time) {
    progress.note("measuring ceilings: GEMM, copy, read");
    result.ceilings = ceilings_before_sweep(device, options.cases);
    gemm = std::make_unique<GemmCeiling>(device);
  }
  for (const Case& item : config.cases) {
    progress.begin_step(case_heading(item));
    std::vector<Record> records = run_case(item, providers, device, gemm.get(), options.cases);
    for (Record& record : records) {
      if (record.status != Status::ok && record.status != Status::unsupported) {
        progress.note(
            fmt::format("  {} {}: {}", record.provider, name(record.status), record.reason));
      }
      result.records.push_back(std::move(record));
    }
    progress.end_step(item.problem.flops());
  }
  result.meta["finished"] = utc_now();
  return result;
}

int exit_code(const SweepResult& result) {
  if (const int code = interrupt_exit_code()) return code;
  const auto any = [&](auto... statuses) {
    return std::any_of(result.records.begin(), result.records.end(),
                       [&](const Record& r) { return ((r.status == statuses) || ...); });
  };
  if (any(Status::failed)) return 3;
  if (any(Status::out_of_memory, Status::error)) return 4;
  return 0;
}

}  // namespace flashbench
