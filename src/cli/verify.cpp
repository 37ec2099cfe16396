#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/flags.h"
#include "report/table.h"
#include "sweep/choose.h"
#include "sweep/interrupt.h"
#include "sweep/sweep.h"

namespace flashbench {

namespace {

struct VerifyFlags {
  ConfigFlags config;
  DeviceFlags device;
  ExportFlags exports;
  bool quiet = false;
};

int verify(const VerifyFlags& flags, const Invocation& invocation) {
  SweepConfig config = flags.config.load();
  flags.device.apply(config);
  const std::unique_ptr<Device> device = make_device(config.device, config.threads);
  const auto providers = choose_providers(config.providers, device->info().kind);

  watch_for_interrupts();
  Progress progress(stderr, Progress::mode_for(stderr, flags.quiet),
                    static_cast<int>(config.cases.size()), total_flops(config.cases));
  SweepOptions options{invocation.argv, {}};
  options.cases.verify = config.verify;
  options.cases.time = false;
  options.cases.interrupted = interrupted;
  const SweepResult result = run_sweep(config, providers, *device, progress, options);

  if (!flags.exports.takes_stdout()) fmt::print("{}", to_table(result));
  flags.exports.write(result);
  return exit_code(result);
}

}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  CLI::App& command =
      *app.add_subcommand("verify", "Verify every case of a config with every provider; no timing");
  auto flags = std::make_shared<VerifyFlags>();
  flags->config.add(command);
  flags->device.add(command);
  flags->exports.add(command);
  command.add_flag("-q,--quiet", flags->quiet, "No progress on stderr");
  command.callback([flags, &invocation] { invocation.exit_code = verify(*flags, invocation); });
}

}  // namespace flashbench
