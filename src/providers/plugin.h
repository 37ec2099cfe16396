// External kernels: a provider over the C interface of include/flashbench/plugin.h.
#pragma once

#include <memory>
#include <string>

#include "providers/provider.h"

namespace flashbench {

// Makes the provider `name`, whose kernel is in the shared object at the absolute `path`. The file
// is loaded when it is first needed, and stays loaded: see load_plugin.
std::unique_ptr<Provider> make_plugin_provider(std::string name, std::string path,
                                               std::string xxh3);

// Loads a plugin, which runs its code. Throws BadInput, naming the path, if the file does not have
// this XXH3-64 (16 hexadecimal digits), is not a shared object, was built for another version of
// the interface, or violates it.
void load_plugin(const std::string& path, const std::string& xxh3);

}  // namespace flashbench
