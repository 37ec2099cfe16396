#include "plan/find_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "attention/error.h"
#include "plan/nearest.h"

namespace flashbench {

namespace {

namespace fs = std::filesystem;

constexpr const char* kExtension = ".json";
constexpr const char* kSchema = "sweep.schema.json";  // beside the shipped configs

bool is_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return fs::exists(status) && !fs::is_directory(status);
}

std::vector<std::string> names_in(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      const fs::path& path = entry.path();
      if (path.extension() != kExtension || path.filename() == kSchema) continue;
      names.push_back(path.stem());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

[[noreturn]] void throw_not_found(const std::string& given, const std::vector<fs::path>& folders) {
  if (folders.empty()) {
    throw FileError(
        fmt::format("no config {}: there is no such file, and no configs ship beside "
                    "this binary",
                    given));
  }
  std::vector<std::string> places;
  for (const fs::path& folder : folders) places.push_back(folder);
  const std::vector<std::string> names = names_in(folders);
  throw FileError(fmt::format("no config {}: there is no such file{}; the configs in {} are {}",
                              given, did_you_mean(fs::path(given).stem().string(), names),
                              fmt::join(places, " and "), fmt::join(names, ", ")));
}

}  // namespace

std::vector<fs::path> config_folders(const fs::path& binary) {
  const fs::path bin = binary.parent_path();
  std::vector<fs::path> folders;
  for (const fs::path& folder : {bin / "../share/flashbench/configs", bin / "../../../configs"}) {
    const fs::path plain = folder.lexically_normal();
    if (is_file(plain / kSchema)) folders.push_back(plain);
  }
  return folders;
}

std::vector<fs::path> config_folders() {
  std::error_code error;
  return config_folders(fs::read_symlink("/proc/self/exe", error));
}

fs::path find_config(const std::string& given, const std::vector<fs::path>& folders) {
  fs::path path = given;
  if (given == "-" || is_file(path)) return path;
  if (!path.has_parent_path()) {
    for (const fs::path& folder : folders) {
      for (const fs::path& file : {folder / path, folder / (given + kExtension)}) {
        if (is_file(file)) return file;
      }
    }
  }
  std::error_code error;
  if (fs::is_directory(path, error)) throw FileError(given + ": cannot read: Is a directory");
  throw_not_found(given, folders);
}

std::string config_help() {
  const std::vector<fs::path> folders = config_folders();
  std::vector<std::string> places;
  for (const fs::path& folder : folders) places.push_back(folder);
  return fmt::format(
      "Configs: --config takes a file, or the name of a config that ships, with or without .json. "
      "Those are in share/flashbench/configs under the installation prefix, and in configs/ "
      "of the repository{}.",
      places.empty() ? "" : fmt::format(" (here: {})", fmt::join(places, ", ")));
}

}  // namespace flashbench
