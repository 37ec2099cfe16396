// Chooses the providers that a sweep runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "providers/provider.h"

namespace flashbench {

// Returns the providers with these names on this kind of device, in the order given; without names,
// all of them. Plugins that are named keep their place; the others follow. Throws BadInput for an
// unknown name, listing the known ones.
std::vector<const Provider*> choose_providers(
    const std::vector<std::string>& names, DeviceKind,
    const std::vector<std::unique_ptr<Provider>>& plugins = {});

}  // namespace flashbench
