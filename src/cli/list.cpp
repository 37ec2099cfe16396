#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/flags.h"
#include "kernels/attention.h"
#include "providers/provider.h"

namespace flashbench {

namespace {

// One problem of each pass and dtype: enough to say what a provider or kernel can do at all.
std::vector<Problem> sample_problems() {
  std::vector<Problem> problems;
  for (Pass pass : kPasses) {
    for (Dtype dtype : kDtypes) {
      problems.push_back({.pass = pass, .dtype = dtype, .q_len = 1024, .kv_len = 1024});
    }
  }
  return problems;
}

// "forward fp32 fp16 bf16; backward fp32", then a line for each reason why something is missing.
template <typename WhyUnsupported>
void print_support(WhyUnsupported why_unsupported) {
  std::vector<std::string> reasons;
  for (Pass pass : kPasses) {
    std::vector<std::string_view> dtypes;
    for (const Problem& problem : sample_problems()) {
      if (problem.pass != pass) continue;
      if (const auto why = why_unsupported(problem)) {
        reasons.push_back(fmt::format("{} {}: {}", name(pass), name(problem.dtype), *why));
      } else {
        dtypes.push_back(name(problem.dtype));
      }
    }
    if (!dtypes.empty()) fmt::print("    {}: {}\n", name(pass), fmt::join(dtypes, ", "));
  }
  for (const std::string& reason : reasons) fmt::print("    not {}\n", reason);
}

int list(const DeviceFlags& flags) {
  const auto device = make_device(flags.device.value_or("auto"), flags.threads.value_or(0));
  const DeviceInfo& info = device->info();
  fmt::print("device: {} ({}, {})\n\nproviders\n", info.name, name(info.kind), info.instructions);
  for (const auto& provider : all_providers()) {
    fmt::print("  {} ({}): {}\n", provider->name(), name(provider->device_kind()),
               provider->description());
    if (provider->device_kind() != info.kind) {
      fmt::print("    not here: it needs a {} device\n", name(provider->device_kind()));
      continue;
    }
    print_support([&](const Problem& problem) { return provider->why_unsupported(problem, info); });
  }
  fmt::print("\nkernels\n");
  for (const kernels::AttentionKernel* kernel : kernels::all_kernels()) {
    fmt::print("  {} ({}, {})\n", kernel->name, name(kernel->device), name(kernel->pass));
  }
  return 0;
}

}  // namespace

void add_list(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "list", "Providers and kernels, with what each supports here, and why not");
  auto flags = std::make_shared<DeviceFlags>();
  command.add_option("--device", flags->device, "auto, cpu, cuda or cuda:N")->type_name("DEVICE");
  command.callback([flags, &invocation] { invocation.exit_code = list(*flags); });
}

}  // namespace flashbench
