#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "attention/error.h"
#include "attention/exit_codes.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/flags.h"
#include "cli/numbers.h"
#include "cli/outputs.h"
#include "plan/input_files.h"
#include "plan/suite.h"
#include "providers/provider.h"
#include "report/cells.h"
#include "report/table.h"
#include "sweep/sweep.h"

namespace flashbench {

namespace {

struct VerifyFlags {
  ConfigFlags config;
  std::string suite;
  std::optional<uint64_t> seed;  // of the suite random, like count
  std::optional<int64_t> count;
  DeviceFlags device;
  ProgramFlags program;
  IsolationFlags isolation;
  ExportFlags exports;
  int repeat = 1;
  bool dry_run = false, quiet = false;
};

Suite suite_of(const VerifyFlags& flags) {
  if (!flags.seed && !flags.count) return make_suite(flags.suite);
  RandomSeeds seeds;
  seeds.seed = flags.seed.value_or(seeds.seed);
  seeds.count = flags.count.value_or(seeds.count);
  return make_suite(flags.suite, seeds);
}

SweepConfig load(const VerifyFlags& flags) {
  if (flags.suite.empty() == flags.config.path.empty()) {
    throw BadInput("expected either --config FILE or --suite NAME");
  }
  if (flags.suite.empty()) return flags.config.load();
  return flags.config.filter.keep(suite_config(suite_of(flags)), flags.suite);
}

// Prints the cases of a suite, below their purpose.
int print_suite(const VerifyFlags& flags) {
  const Suite suite = suite_of(flags);
  fmt::print("{}\n", suite.description);
  for (const SuiteGroup& group : suite.groups) {
    fmt::print("\n{}: {}\n", group.name, group.purpose);
    for (const Case& item : group.cases) {
      if (flags.config.filter.keeps(item)) fmt::print("  {}\n", case_heading(item));
    }
  }
  return exit_codes::kOk;
}

bool takes_bytes(const Runner& runner) {
  const auto kind = runner.device().at("kind").get<std::string>();
  const std::vector<std::string> chosen = runner.providers();
  return std::ranges::any_of(all_providers(), [&](const std::unique_ptr<Provider>& provider) {
    return name(provider->device_kind()) == kind && std::ranges::count(chosen, provider->name()) &&
           std::ranges::count(provider->dtypes(), Dtype::e4m3);
  });
}

// Leaves out a suite's cases of bytes where no provider takes them: few do.
void keep_cases_with_providers(SweepConfig& config, const Runner& runner) {
  if (takes_bytes(runner)) return;
  std::erase_if(config.cases, [](const Case& item) { return item.problem.is_scaled(); });
  if (config.cases.empty()) throw BadInput("no provider of this run takes dtype e4m3");
}

int verify(const VerifyFlags& flags, const Invocation& invocation) {
  SweepConfig config = load(flags);
  flags.device.apply(config);
  flags.program.apply(config, flags.device);
  if (flags.dry_run) {
    return flags.suite.empty() ? print_dry_run(config, false, default_gflops(config))
                               : print_suite(flags);
  }
  flags.exports.check(files_read_by(config));
  const std::unique_ptr<Runner> runner = flags.isolation.make_runner(config);
  if (!flags.suite.empty()) keep_cases_with_providers(config, *runner);
  Progress progress(stderr, Progress::mode_for(stderr, flags.quiet));
  SweepOptions options;
  options.argv = invocation.argv;
  options.cases.verify = config.verify;
  options.cases.time = false;
  options.cases.repeat = flags.repeat;
  const SweepOutcome outcome = run_sweep(config, *runner, nullptr, progress, options);

  flags.exports.write(outcome.result);
  if (!flags.exports.takes_stdout()) fmt::print("{}", to_table(outcome.result));
  return outcome.exit_code;
}

}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "verify", "Verify every case of a config or a suite with every provider; no timing");
  auto flags = std::make_shared<VerifyFlags>();
  flags->config.add(command);
  command.get_option("--config")->required(false);
  command.add_option("--suite", flags->suite, "Built-in cases, instead of a config")
      ->check(CLI::IsMember(suite_names()))
      ->excludes("--config")
      ->excludes("--set");
  command
      .add_option(
          "--seed", flags->seed,
          fmt::format("Suite random: seed of the first problem (default: {})", RandomSeeds().seed))
      ->transform(from_to(uint64_t{0}, std::numeric_limits<uint64_t>::max()))
      ->needs("--suite");
  command
      .add_option(
          "--count", flags->count,
          fmt::format("Suite random: number of problems, with successive seeds (default: {})",
                      RandomSeeds().count))
      ->transform(from_to(int64_t{1}, kMaxCases))
      ->needs("--suite");
  command
      .add_option(
          "--repeat", flags->repeat,
          "Number of runs of each provider on each case; their outputs are compared bit by bit")
      ->transform(from_to(1, 1000000))
      ->capture_default_str();
  flags->device.add(command);
  flags->program.add(command);
  flags->isolation.add(command);
  flags->exports.add(command);
  command.add_flag("--dry-run", flags->dry_run, "List the cases; for a suite, also their purpose");
  command.add_flag("--quiet", flags->quiet, "No progress on stderr");
  command.callback([flags, &invocation] { invocation.exit_code = verify(*flags, invocation); });
}

}  // namespace flashbench
