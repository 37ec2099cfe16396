// Describes what a provider can run on a device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "plan/axis.h"
#include "providers/provider.h"

namespace flashbench {

// A sentence that says why a provider does not run a case here; empty if it does. Optional axes
// that the case mentions and the provider does not know come before the provider's own reasons.
std::optional<std::string> why_unsupported(const Provider&, const Case&, const DeviceInfo&,
                                           const std::vector<Axis>& table = axes());

// Returns its name and description, then the dtypes of each pass, then the reasons why others are
// missing, one per line.
std::string support_text(const Provider&, const DeviceInfo&);

}  // namespace flashbench
