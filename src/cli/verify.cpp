#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/flags.h"
#include "report/table.h"
#include "sweep/sweep.h"

namespace flashbench {

namespace {

struct VerifyFlags {
  ConfigFlags config;
  DeviceFlags device;
  IsolationFlags isolation;
  ExportFlags exports;
  bool quiet = false;
};

int verify(const VerifyFlags& flags, const Invocation& invocation) {
  SweepConfig config = flags.config.load();
  flags.device.apply(config);
  const std::unique_ptr<Runner> runner = flags.isolation.make_runner(config);
  Progress progress(stderr, Progress::mode_for(stderr, flags.quiet),
                    static_cast<int>(config.cases.size()), total_flops(config.cases));
  SweepOptions options;
  options.argv = invocation.argv;
  options.cases.verify = config.verify;
  options.cases.time = false;
  const SweepOutcome outcome = run_sweep(config, *runner, nullptr, progress, options);

  if (!flags.exports.takes_stdout()) fmt::print("{}", to_table(outcome.result));
  flags.exports.write(outcome.result);
  return outcome.exit_code;
}

}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  CLI::App& command =
      *app.add_subcommand("verify", "Verify every case of a config with every provider; no timing");
  auto flags = std::make_shared<VerifyFlags>();
  flags->config.add(command);
  flags->device.add(command);
  flags->isolation.add(command);
  flags->exports.add(command);
  command.add_flag("-q,--quiet", flags->quiet, "No progress on stderr");
  command.callback([flags, &invocation] { invocation.exit_code = verify(*flags, invocation); });
}

}  // namespace flashbench
