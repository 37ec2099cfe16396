#include "sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "attention/error.h"
#include "files/checksum.h"
#include "plan/estimate.h"
#include "plan/input_files.h"
#include "report/cells.h"
#include "report/environment.h"
#include "report/shard_part.h"
#include "sweep/merge.h"
#include "worker/wire.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

Json plugins_json(const SweepConfig& config) {
  Json json = Json::object();
  for (const PluginFile& plugin : config.plugins) json[plugin.provider] = wire::to_json(plugin);
  return json;
}

// What is to be done, as a whole: the same for each shard of a sweep.
Json work_json(const SweepConfig& config, const Runner& runner, const SweepOptions& options) {
  return {{"cases", config.shard ? config.shard->cases : config.cases.size()},
          {"cases_hash", config.shard ? config.shard->cases_hash : cases_hash(config.cases)},
          {"providers", runner.providers()},
          {"plugins", plugins_json(config)},
          {"options", wire::to_json(options.cases)}};
}

Json meta_of(const SweepConfig& config, const Runner& runner, const SweepOptions& options) {
  Json meta = meta_json(options.argv);
  add_input_files(meta, config.cases);
  Json work = work_json(config, runner, options);
  if (config.shard) {
    meta["shard"] = shard_json(*config.shard, std::move(work));
  } else {
    meta["sweep"] = std::move(work);
  }
  return meta;
}

Json identity(const SweepConfig& config, const Runner& runner, const SweepOptions& options,
              const Json& meta) {
  Json json = work_json(config, runner, options);
  Json build = meta_json({});
  for (const char* not_of_the_build : {"argv", "started"}) build.erase(not_of_the_build);
  json["config_hash"] = checksum_text(config.json.dump());
  if (meta.contains("inputs")) json["inputs"] = meta.at("inputs");
  json["build"] = std::move(build);
  json["device"] = kind_of_device(runner.device());
  if (config.shard) json["shard"] = config.shard->shard.text();
  return json;
}

// One repetition of one case.
struct Step {
  const Case* item = nullptr;
  int repetition = 0;
};

std::vector<Step> all_steps(const SweepConfig& config, int repetitions) {
  std::vector<Step> steps;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (const Case& item : config.cases) steps.push_back({&item, repetition});
  }
  return steps;
}

constexpr std::chrono::milliseconds kLookForLoad{200};  // 20 ticks of /proc/stat

// The state of a running sweep.
class Sweep {
 public:
  Sweep(Runner& runner, const std::vector<PluginFile>& plugins, Journal* journal,
        Progress& progress, const SweepOptions& options)
      : runner_(runner),
        plugins_(plugins),
        journal_(journal),
        progress_(progress),
        options_(options) {}

  std::vector<Ceiling> ceilings() {
    if (journal_ != nullptr && journal_->contents().ceilings) return *journal_->contents().ceilings;
    progress_.note("measuring ceilings: GEMM, copy, read");
    std::vector<Ceiling> ceilings = runner_.ceilings(options_.cases.measure);
    if (journal_ != nullptr && !options_.interrupted()) journal_->append(ceilings);
    return ceilings;
  }

  // Measures the load on the cores before anything is timed.
  void look_for_load() {
    if (runner_.device().value("kind", std::string()) != name(DeviceKind::cpu)) return;
    const LoadWatch watch;
    std::this_thread::sleep_for(kLookForLoad);
    const auto load = watch.so_far();
    if (!load || told(*load).empty()) return;
    progress_.note(
        fmt::format("load: {} before the sweep began; times will be too long", told(*load)));
  }

  // Decides whether to count. Throws NoDevice if counters are required and cannot be read.
  void look_for_counters() {
    const CounterMode mode = options_.cases.measure.counters;
    counters_ =
        mode == CounterMode::off ? CounterState{.reason = "switched off"} : runner_.counters();
    if (counters_.status == CounterStatus::ok) return;
    const std::string why = why_none(counters_);
    if (mode == CounterMode::on) throw NoDevice(why);
    if (counters_.status != CounterStatus::off) progress_.note(why);
  }

  void expect(const std::vector<Step>& steps) {
    double work = 0;
    for (const Step& step : steps) work += estimate_of(*step.item);
    progress_.expect(static_cast<int>(steps.size()), work);
  }

  void run(const Step& step) {
    if (stopped_ || options_.interrupted()) return add(step, skipped(step));
    if (step.repetition != repetition_) runner_.renew();
    repetition_ = step.repetition;
    progress_.begin_step(case_heading(*step.item));
    try {
      const auto start = Clock::now();
      std::vector<Record> records = runner_.run(*step.item, runner_.providers(), options_.cases);
      if (options_.interrupted()) return add(step, skipped(step));
      add(step, std::move(records));
      account_for(entries_.back().records, "rest", start);
      if (options_.cases.time && step.repetition == 0) count(*step.item, entries_.back().records);
      account_for(entries_.back().records, "counters", start);
    } catch (const NoDevice& error) {
      stopped_ = error.what();
      return add(step, skipped(step));
    }
    note_problems();
    progress_.end_step(estimate_of(*step.item));
    if (journal_ != nullptr && !options_.interrupted()) journal_->append(entries_.back());
  }

  // Takes the results of a case that was done before.
  void take(const Step& step, JournalEntry entry) {
    progress_.skip_step(estimate_of(*step.item));
    entries_.push_back(std::move(entry));
  }

  void plan(const std::vector<Step>& steps) {
    double work = 0;
    for (const Step& step : steps) work += estimate_of(*step.item);
    progress_.plan(static_cast<int>(steps.size()), work);
  }

  const std::vector<JournalEntry>& entries() const { return entries_; }
  std::optional<std::string> stopped() const {
    return options_.interrupted() ? "interrupted" : stopped_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // The estimated seconds of a case; only the ratios between cases matter.
  double estimate_of(const Case& item) const {
    const auto device = runner_.device();
    const bool cuda = device.at("kind") == name(DeviceKind::cuda);
    const DeviceKind kind = cuda ? DeviceKind::cuda : DeviceKind::cpu;
    const double gemm = assumed_gemm_flops(kind, device.value("threads", 0));
    const CaseRunOptions& cases = options_.cases;
    return cases.time ? estimate_seconds(item, runner_.providers(), cases.measure, cases.verify,
                                         kind, gemm)
                      : estimate_verification(item, runner_.providers(), cases.verify, kind, gemm);
  }

  // Adds the time since `start` that no row of the case accounts for to the first row.
  static void account_for(std::vector<Record>& records, const char* phase,
                          Clock::time_point start) {
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (const Record& record : records) seconds -= record.wall.total();
    if (!records.empty()) records.front().wall.add(phase, std::max(seconds, 0.0));
  }

  void add(const Step& step, std::vector<Record> records) {
    for (Record& record : records) {
      for (const PluginFile& plugin : plugins_) {
        if (plugin.provider == record.provider) record.plugin = plugin;
      }
    }
    entries_.push_back({step.item->key(), step.repetition, std::move(records)});
  }

  std::vector<Record> skipped(const Step& step) const {
    std::vector<Record> records;
    for (const std::string& provider : runner_.providers()) {
      Record record;
      record.item = *step.item;
      record.provider = provider;
      record.reason = stopped_.value_or("interrupted");
      records.push_back(std::move(record));
    }
    return records;
  }

  // Adds a counter report to every record that was timed.
  void count(const Case& item, std::vector<Record>& records) {
    std::vector<std::string> timed;
    for (const Record& record : records) {
      if (record.measurement) timed.push_back(record.provider);
    }
    std::vector<CounterReport> reports(timed.size(), CounterReport{.state = counters_});
    if (counters_.status == CounterStatus::ok && !timed.empty() && !options_.interrupted()) {
      reports = counted(item, timed);
    }
    auto report = reports.begin();
    for (Record& record : records) {
      if (record.measurement) record.counters = std::move(*report++);
    }
  }

  // An error here costs a case its counts and nothing else.
  std::vector<CounterReport> counted(const Case& item, const std::vector<std::string>& providers) {
    try {
      return runner_.count(item, providers, options_.cases);
    } catch (const std::exception& error) {
      CounterReport failed{.state = counters_};
      failed.state.status = CounterStatus::failed;
      failed.state.reason = error.what();
      return std::vector<CounterReport>(providers.size(), failed);
    }
  }

  void note_problems() {
    for (const Record& record : entries_.back().records) {
      if (record.status == Status::ok || record.status == Status::unsupported) continue;
      progress_.note(
          fmt::format("  {} {}: {}", record.provider, name(record.status), record.reason));
    }
  }

  Runner& runner_;
  const std::vector<PluginFile>& plugins_;
  Journal* journal_;
  Progress& progress_;
  const SweepOptions& options_;
  std::vector<JournalEntry> entries_;
  CounterState counters_;
  std::optional<std::string> stopped_;
  int repetition_ = 0;
};

// The journal's entries by case and repetition, without those to run again.
std::map<std::pair<std::string, int>, JournalEntry> done(const Journal* journal,
                                                         bool retry_failed) {
  std::map<std::pair<std::string, int>, JournalEntry> entries;
  if (journal == nullptr) return entries;
  for (const JournalEntry& entry : journal->contents().entries) {
    entries.insert_or_assign({entry.key, entry.repetition}, entry);
  }
  if (retry_failed) {
    std::erase_if(entries, [](const auto& item) { return !ended_well(item.second.records); });
  }
  return entries;
}

// Runs cases again, one repetition after the other, as long as once_more asks for it. Repetitions
// in the journal beyond the planned ones count too.
void run_once_more(Sweep& sweep, const SweepConfig& config, const SweepOptions& options,
                   const std::map<std::pair<std::string, int>, JournalEntry>& journaled,
                   SweepResult& result) {
  int repetition = options.cases.measure.repetitions;
  for (const Case& item : config.cases) {
    for (int again = options.cases.measure.repetitions;; ++again) {
      const auto entry = journaled.find({item.key(), again});
      if (entry == journaled.end()) break;
      sweep.expect({{&item, again}});
      sweep.take({&item, again}, entry->second);
      repetition = std::max(repetition, again + 1);
    }
  }
  while (!sweep.stopped()) {
    result.records = merged(sweep.entries());
    const std::vector<std::string> keys = options.once_more(result);
    if (keys.empty()) return;
    std::vector<Step> steps;
    for (const Case& item : config.cases) {
      if (std::find(keys.begin(), keys.end(), item.key()) != keys.end()) {
        steps.push_back({&item, repetition});
      }
    }
    sweep.expect(steps);
    for (const Step& step : steps) sweep.run(step);
    ++repetition;
  }
}

// Throws FileError if a file that cases read no longer holds what it did when the sweep began: some
// rows may be of other inputs than the result would say.
void require_same_inputs(const SweepConfig& config, const Json& meta) {
  if (!meta.contains("inputs")) return;
  Json now;
  add_input_files(now, config.cases);
  for (const auto& [path, checksum] : meta.at("inputs").items()) {
    if (now.at("inputs").at(path) == checksum) continue;
    throw FileError(
        fmt::format("{}: its contents changed during the sweep; there is no result, "
                    "since nobody knows which rows are of which contents",
                    path));
  }
}

int exit_code(const SweepResult& result, const std::optional<std::string>& stopped) {
  if (const int code = interrupt_exit_code()) return code;
  if (stopped) return exit_codes::kNoDevice;
  const auto any = [&](auto... statuses) {
    return std::any_of(result.records.begin(), result.records.end(),
                       [&](const Record& r) { return ((r.status == statuses) || ...); });
  };
  if (any(Status::failed)) return exit_codes::kVerificationFailed;
  return ended_well(result.records) ? exit_codes::kOk : exit_codes::kCaseFailed;
}

}  // namespace

bool ended_well(const std::vector<Record>& records) {
  return std::all_of(records.begin(), records.end(), [](const Record& record) {
    return record.status == Status::ok || record.status == Status::unsupported;
  });
}

JournalHeader journal_header(const SweepConfig& config, const Runner& runner,
                             const SweepOptions& options) {
  const Json meta = meta_of(config, runner, options);
  return {identity(config, runner, options, meta), meta, runner.device(), config.json};
}

SweepOutcome run_sweep(const SweepConfig& config, Runner& runner, Journal* journal,
                       Progress& progress, const SweepOptions& options) {
  auto journaled = done(journal, options.retry_failed);
  SweepOutcome outcome;
  SweepResult& result = outcome.result;
  result.meta =
      journal != nullptr ? journal->contents().header.meta : meta_of(config, runner, options);
  result.devices = Json::array({runner.device()});
  result.config = config.json;
  if (!journaled.empty()) {
    progress.note(
        fmt::format("{} of {} cases are in the journal", journaled.size(),
                    config.cases.size() * static_cast<size_t>(options.cases.measure.repetitions)));
    result.meta["resumed"] = utc_now();
  }

  Sweep sweep(runner, config.plugins, journal, progress, options);
  const std::vector<Step> steps = all_steps(config, options.cases.measure.repetitions);
  const bool times = options.cases.time && !steps.empty();  // a shard may have no case
  if (times) sweep.look_for_load();
  if (times && options.ceilings) result.ceilings = sweep.ceilings();
  if (times) sweep.look_for_counters();
  sweep.plan(steps);
  for (const Step& step : steps) {
    const auto entry = journaled.find({step.item->key(), step.repetition});
    if (entry != journaled.end()) {
      sweep.take(step, std::move(entry->second));
    } else {
      sweep.run(step);
    }
  }
  progress.finish();
  result.records = merged(sweep.entries());
  if (options.once_more) run_once_more(sweep, config, options, journaled, result);
  if (!sweep.stopped()) require_same_inputs(config, result.meta);
  result.meta["finished"] = utc_now();
  outcome.stopped = sweep.stopped();
  outcome.ended_well = ended_well(result.records);
  outcome.exit_code = exit_code(result, outcome.stopped);
  return outcome;
}

}  // namespace flashbench
