#include "report/notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "measure/undisturbed.h"
#include "report/memory_bound.h"
#include "report/run_parts.h"
#include "report/shard_part.h"

namespace flashbench {

namespace {

std::string ceiling_note(const Record& record, const SweepResult& result) {
  const Record* beyond = beyond_ceiling(record, result.records);
  if (beyond == nullptr || !over_gemm(record)) return "";
  return fmt::format(
      "no % gemm: {} reaches {:.0f}% of the GEMM's FLOP/s, so the GEMM is not a ceiling",
      beyond == &record ? "this row" : beyond->provider, *over_gemm(*beyond) * 100);
}

std::string peak_note(const Record& record, const SweepResult& result) {
  const auto share = over_pipe(record, result);
  if (!share || *share <= 1) return "";
  return fmt::format(
      "no % peak: {:.0f}% of the peak at the samples' SM clock ({:.0f} MHz) is impossible; the "
      "clock "
      "or the claimed work is wrong",
      *share * 100, *median_state(record, &DeviceState::sm_mhz));
}

std::string load_note(const Record& record) {
  if (!record.measurement || !record.measurement->load) return "";
  const std::string load = told(*record.measurement->load);
  if (load.empty()) return "";
  if (!is_heavy(*record.measurement->load)) return "load: " + load;
  const std::vector<bool> clean = undisturbed(*record.measurement);
  return fmt::format("load: {}; {} of {} samples undisturbed", load,
                     std::count(clean.begin(), clean.end(), true), clean.size());
}

std::string group_note(const Record& record) {
  if (!record.group || !record.group->shares_gpus) return "";
  return "ranks share a GPU: its times say nothing about several GPUs";
}

std::string parts_note(const Record& record, const SweepResult& result) {
  const auto rounding = part_seconds(record, RunPart::rounding);
  const auto attention = part_seconds(record, RunPart::attention);
  if (!rounding || !attention) return "";
  const auto share = rounding_share_of_copy(record, result);
  return fmt::format("alone, rounding takes {:.4g} us{}, and the attention {:.4g} us",
                     *rounding * 1e6, share ? fmt::format(" ({:.0f}% of copy)", *share * 100) : "",
                     *attention * 1e6);
}

// Those of the ceilings of each file that the result was merged from.
std::vector<std::string> doubts(const SweepResult& result) {
  std::map<std::string, std::vector<Ceiling>> by_source;
  for (const Ceiling& ceiling : result.ceilings) by_source[ceiling.source].push_back(ceiling);
  std::vector<std::string> all;
  for (const auto& [source, ceilings] : by_source) {
    for (const std::string& doubt : doubts(ceilings)) {
      all.push_back(source.empty() ? doubt : source + ": " + doubt);
    }
  }
  return all;
}

}  // namespace

std::vector<std::string> notes(const Record& record, const SweepResult& result) {
  std::vector<std::string> all{record.verdict.passed() ? record.verdict.coarse : "",
                               ceiling_note(record, result),
                               peak_note(record, result),
                               read_note(record, result),
                               stream_note(record),
                               load_note(record),
                               group_note(record),
                               parts_note(record, result)};
  std::erase(all, "");
  return all;
}

std::vector<std::string> warnings(const SweepResult& result) {
  size_t beyond = 0, impossible = 0;
  double furthest = 0;
  for (const Record& record : result.records) {
    const Record* worst = beyond_ceiling(record, result.records);
    if (worst == &record) {
      ++beyond;
      furthest = std::max(furthest, *over_gemm(record));
    }
    impossible += over_pipe(record, result).value_or(0) > 1 ? 1 : 0;
  }
  std::vector<std::string> all;
  if (beyond > 0) {
    all.push_back(
        fmt::format("warning: in {} case{} a provider exceeds the GEMM ceiling by more than 5% (up "
                    "to {:.0f}% of "
                    "it); % gemm is empty there",
                    beyond, beyond > 1 ? "s" : "", furthest * 100));
  }
  if (impossible > 0) {
    all.push_back(fmt::format(
        "warning: {} row{} beyond the GPU's peak at the measured clock: the clock or the "
        "claimed work is wrong",
        impossible, impossible > 1 ? "s are" : " is"));
  }
  const auto loaded =
      std::count_if(result.records.begin(), result.records.end(),
                    [](const Record& record) { return !load_note(record).empty(); });
  if (loaded > 0) {
    all.push_back(
        fmt::format("warning: {} of {} rows were timed while others used the cores; their times "
                    "may be too long",
                    loaded, result.records.size()));
  }
  for (const std::string& doubt : doubts(result)) all.push_back("warning: " + doubt);
  if (const auto part = shard_part(result.meta)) {
    all.push_back(fmt::format("shard {} of a sweep: {} of its {} cases", part->shard.text(),
                              part->positions.size(), part->cases()));
  }
  return all;
}

}  // namespace flashbench
