#include "sweep/support.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace flashbench {

std::string support_text(const Provider& provider, const DeviceInfo& info) {
  std::string text = fmt::format("  {} ({}): {}\n", provider.name(), name(provider.device_kind()),
                                 provider.description());
  if (provider.device_kind() != info.kind) {
    return text + fmt::format("    not available here: it needs a {} device\n",
                              name(provider.device_kind()));
  }
  if (const auto why = provider.why_absent())
    return text + fmt::format("    not available here: {}\n", *why);
  std::string reasons;
  for (Pass pass : kPasses) {
    std::vector<std::string_view> dtypes;
    for (Dtype dtype : kDtypes) {
      // A typical problem, enough to tell what a provider supports.
      const Problem problem{.pass = pass, .dtype = dtype, .q_len = 1024, .kv_len = 1024};
      if (const auto why = provider.why_unsupported(problem, info)) {
        reasons += fmt::format("    not {} {}: {}\n", name(pass), name(dtype), *why);
      } else {
        dtypes.push_back(name(dtype));
      }
    }
    if (!dtypes.empty()) text += fmt::format("    {}: {}\n", name(pass), fmt::join(dtypes, ", "));
  }
  return text + reasons;
}

}  // namespace flashbench
