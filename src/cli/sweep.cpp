#include "sweep/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attention/error.h"
#include "cli/baseline_flags.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/errors.h"
#include "cli/flags.h"
#include "cli/numbers.h"
#include "cli/outputs.h"
#include "cli/standard_streams.h"
#include "compare/shards.h"
#include "files/atomic_file.h"
#include "plan/input_files.h"
#include "plan/json_differences.h"
#include "plan/json_text.h"
#include "report/csv.h"
#include "report/html/page.h"
#include "report/json.h"
#include "report/markdown.h"
#include "report/table.h"
#include "sweep/journal.h"

namespace flashbench {

namespace {

struct SweepFlags {
  ConfigFlags config;
  DeviceFlags device;
  ProgramFlags program;
  MeasureFlags measure;
  IsolationFlags isolation;
  BaselineFlags baseline;
  std::string out, html;
  std::optional<Shard> shard;
  std::optional<double> assumed_gflops;
  bool no_ceilings = false, resume = false, retry_failed = false, dry_run = false, quiet = false;
};

std::filesystem::path folder_of(const SweepFlags& flags, const SweepConfig& config) {
  if (!flags.out.empty()) return flags.out;
  const std::filesystem::path folder = std::filesystem::path("results") / config.name;
  return config.program.empty() ? folder : folder / std::filesystem::path(config.program).stem();
}

// The result files of a sweep, one format each.
struct ResultFiles {
  std::string json, csv, markdown, journal;
  std::string html;  // no page is made if it is empty; "-" is stdout

  std::vector<std::string> paths() const {
    std::vector<std::string> all{json, csv, markdown};
    if (!html.empty() && html != "-") all.push_back(html);
    return all;
  }

  // Called before hours of measurement rather than after.
  void check(const std::vector<std::string>& inputs) const {
    check_outputs({{"the result file", json},
                   {"the result file", csv},
                   {"the result file", markdown},
                   {"the journal", journal},
                   {"--html", html}},
                  inputs);
  }

  void write(const SweepResult& result) const {
    write_file_atomically(json, to_json(result));
    write_file_atomically(csv, to_csv(result));
    write_file_atomically(markdown, to_markdown(result));
    write_page(result);
  }
  void write_page(const SweepResult& result) const {
    if (!html.empty()) write_text(html, to_html({{json, result}}));
  }
};

// Continues the journal in the folder if requested and present, else starts one.
Journal open_journal(const std::filesystem::path& path, const JournalHeader& header, bool resume) {
  const bool there = std::filesystem::exists(path);
  if (resume && there) return Journal::resume(path, header);
  if (resume) print_error(fmt::format("{}: nothing to resume; starting anew\n", path.string()));
  Journal journal = Journal::start(path, header);
  if (there) {
    print_error(fmt::format(
        "{0}: this journal of an earlier sweep was moved to {0}.old (--resume continues one)\n",
        path.string()));
  }
  return journal;
}

// The files that the sweep reads.
std::vector<std::string> inputs_of(const SweepConfig& config,
                                   const std::optional<LoadedBaseline>& baseline) {
  std::vector<std::string> inputs = files_read_by(config);
  if (baseline) inputs.push_back(baseline->source);
  return inputs;
}

// A line for each row that a sweep has, whatever its repetitions.
std::set<std::string> rows_of(const SweepConfig& config,
                              const std::vector<std::string>& providers) {
  std::set<std::string> rows;
  for (const Case& item : config.cases) {
    for (const std::string& provider : providers) rows.insert(item.key() + " " + provider);
  }
  return rows;
}
std::set<std::string> rows_of(const SweepResult& result) {
  std::set<std::string> rows;
  for (const Record& record : result.records) {
    rows.insert(record.item.key() + " " + record.provider);
  }
  return rows;
}

// What an earlier run has left for --resume to do, if that is nothing: the result of this sweep or
// shard, with every row well. Throws BadInput if the result there is of another sweep.
std::optional<SweepOutcome> finished(const std::filesystem::path& path, const SweepConfig& config,
                                     const std::vector<std::string>& providers,
                                     const JournalHeader& header) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  SweepOutcome outcome;
  outcome.result = read_result(path);
  if (is_shard(outcome.result) != config.shard.has_value()) {
    throw BadInput(fmt::format("{}: expected the result of {}, found {}", path.string(),
                               config.shard ? "a shard" : "a whole sweep",
                               config.shard ? "a whole one" : "a shard"));
  }
  SweepResult now;
  now.meta = header.meta;
  now.devices = nlohmann::ordered_json::array({header.device});
  now.config = header.config;
  const auto identity = [](const SweepResult& result) {
    nlohmann::ordered_json part = common_part(result);
    for (const char* key : {"inputs", "sweep"}) {
      if (result.meta.contains(key)) part[key] = result.meta.at(key);
    }
    return printable_texts(std::move(part));  // as reading the result has made them
  };
  const auto differences = json_differences(identity(outcome.result), identity(now));
  if (!differences.empty()) {
    throw BadInput(
        fmt::format("{}: this result is of another sweep (without --resume it is replaced):{}",
                    path.string(), listed(differences)));
  }
  if (!config.shard && rows_of(outcome.result) != rows_of(config, providers)) {
    throw BadInput(fmt::format(
        "{}: this result has other cases or providers (without --resume it is replaced)",
        path.string()));
  }
  outcome.ended_well = ended_well(outcome.result.records);
  return outcome.ended_well ? std::optional(std::move(outcome)) : std::nullopt;
}

int sweep(const SweepFlags& flags, const Invocation& invocation) {
  SweepConfig config = flags.config.load();
  if (flags.shard) keep_shard(config, *flags.shard);
  flags.device.apply(config);
  flags.program.apply(config, flags.device);
  flags.measure.apply(config.measure);
  flags.isolation.apply(config.measure);
  if (flags.dry_run) {
    return print_dry_run(config, true, flags.assumed_gflops.value_or(default_gflops(config)));
  }

  const std::unique_ptr<Runner> runner = flags.isolation.make_runner(config);
  const std::filesystem::path folder = folder_of(flags, config);
  const auto baseline = flags.baseline.load(folder, config, flags.config.filter, runner->device());
  const std::string stem = folder / named_for_shard(config.name, config.shard);
  const ResultFiles files{stem + ".json", stem + ".csv", stem + ".md", stem + ".journal",
                          flags.html};
  make_folder(folder);
  files.check(inputs_of(config, baseline));
  flags.baseline.require_writable(folder, config);
  SweepOptions options;
  options.argv = invocation.argv;
  options.retry_failed = flags.retry_failed;
  options.ceilings = !flags.no_ceilings;
  options.cases.measure = config.measure;
  options.cases.verify = config.verify;
  options.once_more = flags.baseline.once_more(baseline);
  const JournalHeader header = journal_header(config, *runner, options);
  const std::filesystem::path journal_path = files.journal;
  if (flags.resume && !std::filesystem::exists(journal_path)) {
    if (const auto outcome = finished(files.json, config, runner->providers(), header)) {
      const std::string what = flags.shard ? "shard " + flags.shard->text() : "the sweep";
      fmt::print("{} is finished: {}\n", what, files.json);
      files.write_page(outcome->result);
      return flags.baseline.finish(baseline, folder, config, *outcome);
    }
  }
  Journal journal = open_journal(journal_path, header, flags.resume);

  Progress progress(stderr, Progress::mode_for(stderr, flags.quiet));
  const SweepOutcome outcome = run_sweep(config, *runner, &journal, progress, options);

  if (outcome.stopped) {
    print_error(
        fmt::format("flashbench: {}; the finished cases are in {}; --resume continues the sweep\n",
                    *outcome.stopped, journal.path().string()));
    fmt::print("{}", to_table(outcome.result));
    return outcome.exit_code;
  }
  files.write(outcome.result);
  // Kept if --resume --retry-failed has something to do.
  if (outcome.ended_well) journal.remove();
  if (files.html != "-") {
    fmt::print("{}\nwritten: {}\n", to_table(outcome.result), fmt::join(files.paths(), ", "));
  }
  const int gate = flags.baseline.finish(baseline, folder, config, outcome);
  return outcome.exit_code != exit_codes::kOk ? outcome.exit_code : gate;
}

}  // namespace

void add_sweep(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "sweep",
      "Verify and time every case of a config with every provider; write JSON, CSV, Markdown");
  auto flags = std::make_shared<SweepFlags>();
  flags->config.add(command);
  flags->device.add(command);
  flags->program.add(command);
  flags->measure.add(command);
  flags->measure.add_repetitions(command);
  flags->isolation.add(command);
  flags->baseline.add(command);
  command
      .add_option_function<std::string>(
          "--shard", [flags](const std::string& text) { flags->shard = parse_shard(text); },
          "Run only this part of the cases, e.g. 2/16; report and compare join the results of all "
          "parts")
      ->type_name("NUMBER/COUNT");
  command
      .add_option("-o,--out", flags->out,
                  "Folder for the result files (default: results/NAME, or results/NAME/PROGRAM)")
      ->type_name("DIR");
  command.add_option("--html", flags->html, "Also write the result as an HTML page to this file")
      ->type_name("FILE");
  command.add_flag("--no-ceilings", flags->no_ceilings,
                   "Skip the ceilings (GEMM, copy, read); the roofline plot then has no roof");
  command.add_flag("--resume", flags->resume,
                   "Continue an interrupted sweep from its journal in the output folder");
  command
      .add_flag("--retry-failed", flags->retry_failed,
                "With --resume: also rerun the cases that did not end well")
      ->needs("--resume");
  command.add_flag("--dry-run", flags->dry_run, "Print the plan and touch no device");
  command.add_option("--assume-gflops", flags->assumed_gflops, "GEMM speed that --dry-run assumes")
      ->transform(from_to(1e-3, 1e9));
  command.add_flag("--quiet", flags->quiet, "No progress on stderr");
  command.callback([flags, &invocation] { invocation.exit_code = sweep(*flags, invocation); });
}

}  // namespace flashbench
