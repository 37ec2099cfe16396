// Describes what a provider can run on a device.
#pragma once

#include <string>

#include "device/device.h"
#include "providers/provider.h"

namespace flashbench {

// Returns its name and description, then the dtypes of each pass, then the reasons why others are
// missing, one per line.
std::string support_text(const Provider&, const DeviceInfo&);

}  // namespace flashbench
