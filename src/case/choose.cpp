#include "case/choose.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/error.h"
#include "providers/providers.h"

namespace flashbench {

namespace {

// A build without CUDA has no list of the families of our GPU kernels: here a family that the CPU
// does not have is one of them.
bool is_for_gpus_only(std::string_view name) {
  return name.starts_with(kFamilyPrefix) ||
         std::find(kCudaOnlyNames.begin(), kCudaOnlyNames.end(), name) != kCudaOnlyNames.end();
}

}  // namespace

bool is_meant_by(std::string_view name, std::string_view wanted) {
  return wanted.ends_with('*') ? name.starts_with(wanted.substr(0, wanted.size() - 1))
                               : name == wanted;
}

std::vector<const Provider*> choose_providers(
    const std::vector<std::string>& names, DeviceKind kind,
    const std::vector<std::unique_ptr<Provider>>& plugins) {
  std::vector<const Provider*> available;
  std::vector<std::string_view> known;
  for (const auto& provider : all_providers()) {
    if (provider->device_kind() != kind) continue;
    available.push_back(provider.get());
    known.push_back(provider->name());
  }
  std::vector<const Provider*> chosen;
  if (names.empty()) {
    chosen = available;
    std::erase_if(chosen, [](const Provider* provider) {
      return provider->on_request_only() || provider->why_absent();
    });
  }
  for (const auto& plugin : plugins) {
    available.push_back(plugin.get());
    known.push_back(plugin->name());
  }
  const auto add = [&](const Provider* provider) {
    if (std::find(chosen.begin(), chosen.end(), provider) == chosen.end()) {
      chosen.push_back(provider);
    }
  };
  for (const std::string& wanted : names) {
    bool found = false;
    for (const Provider* provider : available) {
      if (!is_meant_by(provider->name(), wanted)) continue;
      found = true;
      add(provider);
    }
    if (!found) {
      if (kind == DeviceKind::cpu && is_for_gpus_only(wanted)) {
        throw BadInput(
            fmt::format("providers: \"{}\" needs a cuda device; this is the CPU", wanted));
      }
      throw BadInput(fmt::format("providers: expected one of {} on device {}, got \"{}\"{}",
                                 fmt::join(known, ", "), name(kind), wanted,
                                 is_plugin(wanted) ? "; --plugin takes its file" : ""));
    }
  }
  for (const auto& plugin : plugins) add(plugin.get());
  return chosen;
}

}  // namespace flashbench
