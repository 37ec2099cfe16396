// Which providers a sweep runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "providers/provider.h"

namespace flashbench {

// The providers with these names on this kind of device, in the order given; all that it has if
// there are no names. Plugins among the names have their place there, the others follow. Throws
// BadInput for an unknown name, with the known ones.
std::vector<const Provider*> choose_providers(
    const std::vector<std::string>& names, DeviceKind,
    const std::vector<std::unique_ptr<Provider>>& plugins = {});

}  // namespace flashbench
