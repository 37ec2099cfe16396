#include "case/support.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace flashbench {

namespace {

// Names the optional axes that the case mentions and the provider does not know.
std::vector<std::string_view> unknown_axes(const Provider& provider, const Case& item,
                                           const std::vector<Axis>& table) {
  const std::vector<std::string_view> known = provider.optional_axes();
  std::vector<std::string_view> unknown;
  for (const Axis& axis : table) {
    if (axis.role != Axis::Role::optional || !axis.of_problem || !axis.is_mentioned(item)) continue;
    if (std::find(known.begin(), known.end(), axis.name) == known.end()) {
      unknown.push_back(axis.name);
    }
  }
  return unknown;
}

std::optional<std::string> why_no_dtype(const Provider& provider, Dtype dtype) {
  const std::vector<Dtype> known = provider.dtypes();
  if (std::find(known.begin(), known.end(), dtype) != known.end()) return std::nullopt;
  return fmt::format("it does not take dtype {}", name(dtype));
}

}  // namespace

std::optional<std::string> why_unsupported(const Provider& provider, const Case& item,
                                           const DeviceInfo& info, const std::vector<Axis>& table) {
  if (auto why = why_no_dtype(provider, item.problem.dtype)) return why;
  if (const auto unknown = unknown_axes(provider, item, table); !unknown.empty()) {
    return fmt::format("it does not support {}", fmt::join(unknown, " and "));
  }
  if (auto why = provider.why_unsupported(item.problem, info)) return why;
  return provider.why_unsupported_placement(item.problem, item.placement, info);
}

OutputFormat output_format(const Provider& provider, const Problem& p, const Inputs& host) {
  const Dtype dtype = provider.output_dtype(p);
  if (dtype != Dtype::e4m3) return {.dtype = dtype};
  const float* factors = host.v.descales.data;
  return {dtype, *std::max_element(factors, factors + p.key_descales())};
}

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
      if (problem.invalid()) continue;  // no provider can
      auto why = why_no_dtype(provider, dtype);
      if (!why) why = provider.why_unsupported(problem, info);
      if (why) {
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
