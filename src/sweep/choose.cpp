#include "sweep/choose.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/error.h"

namespace flashbench {

std::vector<const Provider*> choose_providers(const std::vector<std::string>& names,
                                              DeviceKind kind) {
  std::vector<const Provider*> available;
  std::vector<std::string_view> known;
  for (const auto& provider : all_providers()) {
    if (provider->device_kind() != kind) continue;
    available.push_back(provider.get());
    known.push_back(provider->name());
  }
  if (names.empty()) {
    std::erase_if(available, [](const Provider* provider) { return provider->on_request_only(); });
    return available;
  }

  std::vector<const Provider*> chosen;
  for (const std::string& wanted : names) {
    const auto found = std::find_if(available.begin(), available.end(),
                                    [&](const Provider* p) { return p->name() == wanted; });
    if (found == available.end()) {
      throw BadInput(fmt::format("providers: expected one of {} on device {}, got \"{}\"",
                                 fmt::join(known, ", "), name(kind), wanted));
    }
    if (std::find(chosen.begin(), chosen.end(), *found) == chosen.end()) chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace flashbench
