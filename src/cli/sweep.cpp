#include "sweep/sweep.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "attention/error.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/flags.h"
#include "device/atomic_file.h"
#include "report/csv.h"
#include "report/json.h"
#include "report/markdown.h"
#include "report/table.h"
#include "sweep/choose.h"
#include "sweep/interrupt.h"

namespace flashbench {

namespace {

struct SweepFlags {
  ConfigFlags config;
  DeviceFlags device;
  MeasureFlags measure;
  std::string out;
  std::optional<double> assumed_gflops;
  bool dry_run = false, quiet = false;
};

std::filesystem::path prepare_folder(const SweepFlags& flags, const SweepConfig& config) {
  const std::filesystem::path folder = flags.out.empty()
                                           ? std::filesystem::path("results") / config.name
                                           : std::filesystem::path(flags.out);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw FileError(
        fmt::format("{}: cannot make this folder: {}", folder.string(), error.message()));
  }
  // Tried before hours of measuring, rather than after.
  write_file_atomically(folder / ".writable", "");
  std::filesystem::remove(folder / ".writable", error);
  return folder;
}

void write_files(const std::filesystem::path& folder, const SweepConfig& config,
                 const SweepResult& result) {
  const auto file = [&](const char* extension) { return folder / (config.name + extension); };
  write_file_atomically(file(".json"), to_json(result));
  write_file_atomically(file(".csv"), to_csv(result));
  write_file_atomically(file(".md"), to_markdown(result));
  fmt::print("\nwritten: {0}.json, {0}.csv, {0}.md\n", (folder / config.name).string());
}

int sweep(const SweepFlags& flags, const Invocation& invocation) {
  SweepConfig config = flags.config.load();
  flags.device.apply(config);
  flags.measure.apply(config.measure);
  if (flags.dry_run) {
    return print_dry_run(config, flags.assumed_gflops.value_or(default_gflops(config)));
  }

  const std::unique_ptr<Device> device = make_device(config.device, config.threads);
  const auto providers = choose_providers(config.providers, device->info().kind);
  const std::filesystem::path folder = prepare_folder(flags, config);

  watch_for_interrupts();
  Progress progress(stderr, Progress::mode_for(stderr, flags.quiet),
                    static_cast<int>(config.cases.size()), total_flops(config.cases));
  SweepOptions options{invocation.argv, {}};
  options.cases.measure = config.measure;
  options.cases.verify = config.verify;
  options.cases.interrupted = interrupted;
  const SweepResult result = run_sweep(config, providers, *device, progress, options);

  fmt::print("{}", to_table(result));
  write_files(folder, config, result);
  return exit_code(result);
}

}  // namespace

void add_sweep(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "sweep",
      "Verify and time every case of a config with every provider; write JSON, CSV, Markdown");
  auto flags = std::make_shared<SweepFlags>();
  flags->config.add(command);
  flags->device.add(command);
  flags->measure.add(command);
  command.add_option("-o,--out", flags->out, "Folder for the result files (default: results/NAME)")
      ->type_name("DIR");
  command.add_flag("--dry-run", flags->dry_run, "Print the plan and touch no device");
  command
      .add_option("--assume-gflops", flags->assumed_gflops,
                  "GEMM speed that --dry-run reckons with")
      ->check(CLI::Range(1e-3, 1e9));
  command.add_flag("-q,--quiet", flags->quiet, "No progress on stderr");
  command.callback([flags, &invocation] { invocation.exit_code = sweep(*flags, invocation); });
}

}  // namespace flashbench
