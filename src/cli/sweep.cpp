#include "sweep/sweep.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/baseline_flags.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/errors.h"
#include "cli/flags.h"
#include "device/atomic_file.h"
#include "report/csv.h"
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
  std::string out;
  std::optional<double> assumed_gflops;
  bool no_ceilings = false, resume = false, retry_failed = false, dry_run = false, quiet = false;
};

std::filesystem::path folder_of(const SweepFlags& flags, const SweepConfig& config) {
  if (!flags.out.empty()) return flags.out;
  const std::filesystem::path folder = std::filesystem::path("results") / config.name;
  return config.program.empty() ? folder : folder / std::filesystem::path(config.program).stem();
}

void prepare_folder(const std::filesystem::path& folder) {
  make_folder(folder);
  // Tried before hours of measuring, rather than after.
  write_file_atomically(folder / ".writable", "");
  std::error_code unimportant;
  std::filesystem::remove(folder / ".writable", unimportant);
}

void write_files(const std::filesystem::path& folder, const SweepConfig& config,
                 const SweepResult& result) {
  const auto file = [&](const char* extension) { return folder / (config.name + extension); };
  write_file_atomically(file(".json"), to_json(result));
  write_file_atomically(file(".csv"), to_csv(result));
  write_file_atomically(file(".md"), to_markdown(result));
  fmt::print("\nwritten: {0}.json, {0}.csv, {0}.md\n", (folder / config.name).string());
}

// Goes on with the journal in the folder if that was asked for and there is one, else starts one.
Journal open_journal(const std::filesystem::path& path, const JournalHeader& header, bool resume) {
  const bool there = std::filesystem::exists(path);
  if (resume && there) return Journal::resume(path, header);
  if (resume) fmt::print(stderr, "{}: nothing to resume; starting anew\n", path.string());
  if (!resume && there) {
    fmt::print(stderr,
               "{0}: of an earlier sweep, moved to {0}.old (--resume would go on with it)\n",
               path.string());
  }
  return Journal::start(path, header);
}

int sweep(const SweepFlags& flags, const Invocation& invocation) {
  SweepConfig config = flags.config.load();
  flags.device.apply(config);
  flags.program.apply(config, flags.device);
  flags.measure.apply(config.measure);
  flags.isolation.apply(config.measure);
  if (flags.dry_run) {
    return print_dry_run(config, flags.assumed_gflops.value_or(default_gflops(config)));
  }

  const std::unique_ptr<Runner> runner = flags.isolation.make_runner(config);
  const std::filesystem::path folder = folder_of(flags, config);
  const auto baseline = flags.baseline.load(folder, config, flags.config.filter, runner->device());
  prepare_folder(folder);
  SweepOptions options;
  options.argv = invocation.argv;
  options.retry_failed = flags.retry_failed;
  options.ceilings = !flags.no_ceilings;
  options.cases.measure = config.measure;
  options.cases.verify = config.verify;
  options.once_more = flags.baseline.once_more(baseline);
  Journal journal = open_journal(folder / (config.name + ".journal"),
                                 journal_header(config, *runner, options), flags.resume);

  Progress progress(stderr, Progress::mode_for(stderr, flags.quiet),
                    static_cast<int>(config.cases.size()) * config.measure.repetitions,
                    total_flops(config.cases) * config.measure.repetitions);
  const SweepOutcome outcome = run_sweep(config, *runner, &journal, progress, options);

  fmt::print("{}", to_table(outcome.result));
  if (outcome.stopped) {
    fmt::print(stderr, "flashbench: {}; what was done is in {}: go on with --resume\n",
               *outcome.stopped, journal.path().string());
    return outcome.exit_code;
  }
  write_files(folder, config, outcome.result);
  // Kept where --resume --retry-failed has something to do.
  if (outcome.ended_well) journal.remove();
  const int gate = flags.baseline.finish(baseline, folder, outcome.result);
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
      .add_option("-o,--out", flags->out,
                  "Folder for the result files (default: results/NAME, or results/NAME/PROGRAM)")
      ->type_name("DIR");
  command.add_flag("--no-ceilings", flags->no_ceilings,
                   "Do not measure copy, read and GEMM before: the roofline then has no roof");
  command.add_flag("--resume", flags->resume,
                   "Go on with an interrupted sweep from its journal in the folder");
  command
      .add_flag("--retry-failed", flags->retry_failed,
                "With --resume: run again the cases that did not end well")
      ->needs("--resume");
  command.add_flag("--dry-run", flags->dry_run, "Print the plan and touch no device");
  command
      .add_option("--assume-gflops", flags->assumed_gflops,
                  "GEMM speed that --dry-run reckons with")
      ->check(CLI::Range(1e-3, 1e9));
  command.add_flag("-q,--quiet", flags->quiet, "No progress on stderr");
  command.callback([flags, &invocation] { invocation.exit_code = sweep(*flags, invocation); });
}

}  // namespace flashbench
