// What a provider can run on a device, in words.
#pragma once

#include <string>

#include "device/device.h"
#include "providers/provider.h"

namespace flashbench {

// Its name and description, then the dtypes of each pass, then why others are missing; a line
// each.
std::string support_text(const Provider&, const DeviceInfo&);

}  // namespace flashbench
