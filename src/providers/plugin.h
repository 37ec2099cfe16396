// Kernels of other people's: a provider over the C interface of include/flashbench/plugin.h.
#pragma once

#include <memory>
#include <string>

#include "providers/provider.h"

namespace flashbench {

// The provider with this name whose kernel is in the shared object at `path`, absolute. The file
// is loaded when it is first needed, and stays loaded: see load_plugin.
std::unique_ptr<Provider> make_plugin_provider(std::string name, std::string path,
                                               std::string xxh3);

// Loads a plugin now, which runs its code. Throws BadInput, naming the path, if the file has not
// this XXH3-64 (16 hexadecimal digits), is no shared object, was built for another version of the
// interface, or does not keep to it.
void load_plugin(const std::string& path, const std::string& xxh3);

}  // namespace flashbench
