#include "cli/dry_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/error.h"
#include "attention/exit_codes.h"
#include "case/choose.h"
#include "case/support.h"
#include "plan/count_of.h"
#include "plan/estimate.h"
#include "providers/provider.h"
#include "report/cells.h"
#include "report/progress.h"

namespace flashbench {

namespace {

bool runs_on_gpu(const SweepConfig& config) {
  return config.device.starts_with("cuda");
}

// The CPU providers that the config names; without names, those that run unasked.
std::vector<const Provider*> cpu_providers(const SweepConfig& config) {
  std::vector<const Provider*> chosen;
  for (const auto& provider : all_providers()) {
    if (provider->device_kind() != DeviceKind::cpu) continue;
    const auto& names = config.providers;
    const auto means_it = [&](const std::string& wanted) {
      return is_meant_by(provider->name(), wanted);
    };
    const bool is_chosen =
        names.empty() ? !provider->on_request_only() : std::ranges::any_of(names, means_it);
    if (is_chosen) chosen.push_back(provider.get());
  }
  return chosen;
}

// The names of these providers, and those that are of no provider of the CPU.
std::vector<std::string> all_names(const SweepConfig& config,
                                   const std::vector<const Provider*>& providers) {
  std::vector<std::string> names;
  for (const Provider* provider : providers) names.emplace_back(provider->name());
  for (const std::string& wanted : config.providers) {
    const auto means = [&](const Provider* p) { return is_meant_by(p->name(), wanted); };
    if (std::ranges::none_of(providers, means)) names.push_back(wanted);
  }
  return names;
}

// Those of the CPU are known, of a GPU only in a build with CUDA, and of a program only when it
// runs.
void require_known_providers(const SweepConfig& config) {
  if (config.device != "cpu" || !config.program.empty()) return;
  const std::vector<const Provider*> known = cpu_providers(config);
  for (const std::string& wanted : config.providers) {
    const auto is_meant = [&](const Provider* one) { return is_meant_by(one->name(), wanted); };
    const auto is_plugin = [&](const PluginFile& plugin) { return plugin.provider == wanted; };
    if (std::ranges::any_of(known, is_meant) || std::ranges::any_of(config.plugins, is_plugin)) {
      continue;
    }
    throw BadInput(fmt::format("no provider \"{}\" runs on the CPU (see: list)", wanted));
  }
}

// The sum over all providers: all workspaces exist while the providers are timed in turns.
int64_t workspace_bytes(const Case& item, const std::vector<const Provider*>& providers,
                        const DeviceInfo& device) {
  int64_t bytes = 0;
  for (const Provider* provider : providers) {
    if (!why_unsupported(*provider, item, device)) {
      bytes += provider->workspace_bytes(item.problem, device);
    }
  }
  return bytes;
}

double mebibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

double default_gflops(const SweepConfig& config) {
  const DeviceKind kind = runs_on_gpu(config) ? DeviceKind::cuda : DeviceKind::cpu;
  return assumed_gemm_flops(kind, config.threads) * 1e-9;
}

int print_dry_run(const SweepConfig& config, bool timed, double assumed_gflops) {
  require_known_providers(config);
  const auto providers =
      runs_on_gpu(config) ? std::vector<const Provider*>{} : cpu_providers(config);
  const DeviceInfo device = make_host_device(config.threads)->info();
  std::vector<std::string> names = all_names(config, providers);
  for (const PluginFile& plugin : config.plugins) {
    if (!names.empty() && std::find(names.begin(), names.end(), plugin.provider) == names.end()) {
      names.push_back(plugin.provider);
    }
  }

  double flops = 0;
  int64_t peak = 0;
  fmt::print("{:>12} {:>12} {:>14}  case\n", "GFLOP", "tensors MiB", "workspace MiB");
  for (const Case& item : config.cases) {
    const CaseEstimate estimated = estimate(item);
    const int64_t workspace = workspace_bytes(item, providers, device);
    fmt::print("{:>12.3f} {:>12.1f} {:>14.1f}  {}\n", estimated.flops * 1e-9,
               mebibytes(estimated.tensor_bytes), mebibytes(workspace), case_heading(item));
    flops += estimated.flops;
    peak = std::max(peak, estimated.tensor_bytes + workspace);
  }
  const double seconds =
      estimate_sweep(config, names, timed, runs_on_gpu(config) ? DeviceKind::cuda : DeviceKind::cpu,
                     assumed_gflops * 1e9);
  fmt::print(
      "\n{} for {} on device {}: {:.1f} GFLOP for one run of each, at most about {:.0f} MiB, about "
      "{} at an assumed {:.0f} GFLOP/s\n",
      count_of(config.cases.size(), "case"),
      names.empty() ? "all providers" : fmt::format("{}", fmt::join(names, ", ")), config.device,
      flops * 1e-9, mebibytes(peak), format_duration(seconds), assumed_gflops);
  return exit_codes::kOk;
}

}  // namespace flashbench
