// Describes what a provider can run on a device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "plan/axis.h"
#include "providers/provider.h"

namespace flashbench {

// A sentence that says why a provider does not run a case here; empty if it does. What a case has
// of optional axes that the provider does not know comes before what it says itself.
std::optional<std::string> why_unsupported(const Provider&, const Case&, const DeviceInfo&,
                                           const std::vector<Axis>& table = axes());

// Its name and description, then the dtypes of each pass, then why others are missing; a line
// each.
std::string support_text(const Provider&, const DeviceInfo&);

}  // namespace flashbench
