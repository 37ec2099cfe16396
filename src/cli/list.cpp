#include <fmt/format.h>

#include <memory>

#include "attention/exit_codes.h"
#include "case/support.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "device/cudnn_library.h"
#include "device/nccl_library.h"
#include "kernels/attention.h"
#include "providers/provider.h"

namespace flashbench {

namespace {

// Each plugin is described in its own worker, so that its failure does not affect another.
std::string plugin_text(const PluginFile& plugin, const std::string& device) {
  try {
    const RunnerOptions options{device, 0, {plugin.provider}, {plugin}};
    return make_isolated_runner(options, {})->describe(plugin.provider);
  } catch (const std::exception& error) {
    return fmt::format("  {}\n    not available here: {}\n", plugin.provider, error.what());
  }
}

int list(const DeviceFlags& flags) {
  const std::vector<PluginFile> plugins = parse_plugins(flags.plugins);
  const std::string selector = flags.device.value_or("auto");
  const auto device = make_device(selector, flags.threads.value_or(0));
  const DeviceInfo& info = device->info();
  fmt::print("device: {} ({}, {})\n", info.name, name(info.kind), info.instructions);
  if (info.kind == DeviceKind::cuda && cudnn_library().error.empty()) {
    fmt::print("cuDNN: {} ({})\n", cudnn_library().version, cudnn_library().path);
  }
  if (info.kind == DeviceKind::cuda && nccl_library().error.empty()) {
    fmt::print("NCCL: {} ({})\n", nccl_library().version, nccl_library().path);
  }
  fmt::print("\nproviders\n");
  for (const auto& provider : all_providers()) fmt::print("{}", support_text(*provider, info));
  for (const PluginFile& plugin : plugins) fmt::print("{}", plugin_text(plugin, selector));
  fmt::print("\nkernels\n");
  for (const kernels::AttentionKernel* kernel : kernels::all_kernels()) {
    fmt::print("  {} ({}, {})\n", kernel->name, name(kernel->device), name(kernel->pass));
  }
  return exit_codes::kOk;
}

}  // namespace

void add_list(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "list",
      "List providers and kernels: what each supports on this device, and why not the rest");
  auto flags = std::make_shared<DeviceFlags>();
  command.add_option("--device", flags->device, "auto, cpu, cuda, cuda:N, or cuda:N,N,...")
      ->type_name("DEVICE");
  add_plugin_flag(command, flags->plugins);
  add_library_options(command);
  command.callback([flags, &invocation] { invocation.exit_code = list(*flags); });
}

}  // namespace flashbench
