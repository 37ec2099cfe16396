#include "plan/plugin_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "attention/error.h"
#include "files/checksum.h"

namespace flashbench {

namespace {

constexpr std::string_view kPrefix = "plugin:";
constexpr size_t kLongestName = 64;

// Names become folders (--dump), and values of columns.
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
         });
}

std::string name_of_file(const std::filesystem::path& path) {
  const std::string stem = path.stem().string();
  return stem.starts_with("lib") && stem.size() > 3 ? stem.substr(3) : stem;
}

PluginFile parse_plugin(const std::string& text) {
  const size_t equals = text.starts_with('/') ? std::string::npos : text.find('=');
  const std::string path = equals == std::string::npos ? text : text.substr(equals + 1);
  if (!path.starts_with('/')) {
    const std::string hint =
        path.empty() ? ""
                     : fmt::format("; \"{}\" would be one",
                                   std::filesystem::absolute(path).lexically_normal().string());
    throw BadInput(fmt::format(
        "--plugin: expected the absolute path of a shared object, got \"{}\"{}", path, hint));
  }
  const std::string name =
      equals == std::string::npos ? name_of_file(path) : text.substr(0, equals);
  if (!is_name(name)) {
    throw BadInput(fmt::format(
        "--plugin: expected a name of up to {} letters, digits, '_', '-' and '.', got \"{}\"; "
        "NAME={} sets the name",
        kLongestName, name, path));
  }
  return {std::string(kPrefix) + name, path, file_checksum_text(path)};
}

}  // namespace

std::vector<PluginFile> parse_plugins(const std::vector<std::string>& arguments) {
  std::vector<PluginFile> plugins;
  for (const std::string& text : arguments) {
    PluginFile plugin = parse_plugin(text);
    for (const PluginFile& other : plugins) {
      if (other.provider != plugin.provider) continue;
      throw BadInput(
          fmt::format("--plugin: {} and {} are both called {}; NAME=PATH sets another name",
                      other.path, plugin.path, plugin.provider));
    }
    plugins.push_back(std::move(plugin));
  }
  return plugins;
}

bool is_plugin(std::string_view provider) {
  return provider.starts_with(kPrefix);
}

std::string argument(const PluginFile& plugin) {
  return fmt::format("{}={}", std::string_view(plugin.provider).substr(kPrefix.size()),
                     plugin.path);
}

}  // namespace flashbench
