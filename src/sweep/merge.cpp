#include "sweep/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "report/run_parts.h"

namespace flashbench {

namespace {

// Keeps core times only if every sample has them.
void append_core_times(Measurement& all, const Measurement& more) {
  const bool every =
      all.core_times.size() == all.seconds.size() && more.core_times.size() == more.seconds.size();
  if (!every) return all.core_times.clear();
  all.core_times.insert(all.core_times.end(), more.core_times.begin(), more.core_times.end());
}

// Keeps the load only if every process has one.
void append_load(Measurement& all, const Measurement& more) {
  all.load = all.load && more.load ? std::optional(*all.load + *more.load) : std::nullopt;
}

void append(Measurement& all, const Measurement& more) {
  const auto count = [](const Measurement& m) { return static_cast<int>(m.seconds.size()); };
  if (all.samples_per_process.empty()) all.samples_per_process = {count(all)};
  all.samples_per_process.push_back(count(more));
  append_core_times(all, more);
  append_load(all, more);
  all.seconds.insert(all.seconds.end(), more.seconds.begin(), more.seconds.end());
  all.states.insert(all.states.end(), more.states.begin(), more.states.end());
  // If the reasons differ, keeps the one that needs attention.
  if (more.stop_reason != "interval") all.stop_reason = more.stop_reason;
}

void take_worse(Verdict& verdict, const Verdict& other) {
  const auto lambda = [](const Verdict& v) {
    const auto worst = worst_error(v);
    return worst ? worst->lambda : 0;
  };
  const std::string coarse = verdict.coarse.empty() ? other.coarse : verdict.coarse;
  if (lambda(other) > lambda(verdict)) verdict = other;
  verdict.coarse = coarse;
}

// Another process may use a GEMM of another size: scales its samples to the same number of FLOPs.
Measurement gemm_of_as_many_flops(const Record& record, double flops) {
  Measurement gemm = *record.gemm;
  for (double& seconds : gemm.seconds) seconds *= flops / record.gemm_flops;
  return gemm;
}

// Appends to each what `more_of` finds of it in the next process. Keeps those that every process
// measured.
template <typename Measured, typename MoreOf>
void append_each(std::vector<Measured>& all, const MoreOf& more_of) {
  std::erase_if(all, [&](Measured& one) {
    const Measurement* more = more_of(one);
    if (more != nullptr) append(one.measurement, *more);
    return more == nullptr;
  });
}

// `record` contains repetitions 0 to number - 1, all ok.
void add_repetition(Record& record, const Record& next, int number) {
  if (next.status != Status::ok) {
    record = next;
    record.reason = fmt::format("in repetition {}: {}", number + 1, next.reason);
    return withdraw_times(record);
  }
  take_worse(record.verdict, next.verdict);
  if (record.measurement && next.measurement) append(*record.measurement, *next.measurement);
  if (record.gemm && next.gemm) {
    append(*record.gemm, gemm_of_as_many_flops(next, record.gemm_flops));
  }
  append_each(record.parts, [&](const PartTime& part) { return part_of_run(next, part.part); });
  append_each(record.round_ceilings, [&](const Ceiling& ceiling) {
    const Ceiling* more = round_ceiling(next, ceiling.name);
    return more == nullptr ? nullptr : &more->measurement;
  });
}

}  // namespace

std::vector<Record> merged(const std::vector<JournalEntry>& entries) {
  // The latest entry by (case, repetition), and the cases in order of first occurrence.
  std::map<std::pair<std::string, int>, const JournalEntry*> latest;
  std::vector<std::string> keys;
  std::set<std::string> known;
  for (const JournalEntry& entry : entries) {
    latest[{entry.key, entry.repetition}] = &entry;
    if (known.insert(entry.key).second) keys.push_back(entry.key);
  }

  std::vector<Record> records;
  for (const std::string& key : keys) {
    std::vector<Record> rows;
    for (auto it = latest.lower_bound({key, 0}); it != latest.end() && it->first.first == key;
         ++it) {
      for (const Record& record : it->second->records) {
        const auto row = std::find_if(rows.begin(), rows.end(), [&](const Record& r) {
          return r.provider == record.provider;
        });
        if (row == rows.end()) {
          rows.push_back(record);
        } else if (row->status == Status::ok) {
          add_repetition(*row, record, it->first.second);
        }
      }
    }
    records.insert(records.end(), rows.begin(), rows.end());
  }
  return records;
}

}  // namespace flashbench
