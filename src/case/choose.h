// Chooses the providers that a sweep runs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "providers/provider.h"

namespace flashbench {

// Whether `wanted` is this name, or the beginning of it and an asterisk.
bool is_meant_by(std::string_view name, std::string_view wanted);

// Returns the providers with these names on this kind of device, in the order given; without names,
// all that run unasked. A name that ends with * stands for all that begin so: tiled:* for each
// family of our GPU kernels. Plugins that are named keep their place; the others follow. Throws
// BadInput for an unknown name, listing the known ones.
std::vector<const Provider*> choose_providers(
    const std::vector<std::string>& names, DeviceKind,
    const std::vector<std::unique_ptr<Provider>>& plugins = {});

}  // namespace flashbench
