// The shared objects that --plugin names. Here they are files with a name and a hash; what loads
// them is providers/plugin.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashbench {

struct PluginFile {
  std::string provider;  // "plugin:NAME"
  std::string path;      // absolute
  std::string xxh3;      // XXH3-64 of its bytes, 16 hexadecimal digits

  bool operator==(const PluginFile&) const = default;
};

// --plugin arguments: "/path/to/NAME.so", also "/path/to/libNAME.so", or "NAME=/path/to/file.so".
// Reads the files and runs nothing of them. Throws BadInput for paths that are not absolute, names
// that are none and names given twice; FileError for what cannot be read.
std::vector<PluginFile> parse_plugins(const std::vector<std::string>& arguments);

// Whether a provider of this name is a plugin.
bool is_plugin(std::string_view provider);

// The argument that names this file.
std::string argument(const PluginFile&);

}  // namespace flashbench
