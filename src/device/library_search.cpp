#include "device/library_search.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace flashbench {

namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code unimportant;
  return fs::exists(path, unimportant);
}

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

// Adds the folder in which pip installs it: lib/python3.N/site-packages/nvidia/PACKAGE/lib.
void add_from_environment(const LibraryName& name, const fs::path& root,
                          std::vector<std::string>& candidates) {
  std::error_code unimportant;
  for (const auto& entry : fs::directory_iterator(root / "lib", unimportant)) {
    if (!entry.path().filename().string().starts_with("python")) continue;
    const fs::path file = entry.path() / "site-packages/nvidia" / name.package / "lib" / name.file;
    if (is_there(file)) candidates.push_back(file);
  }
}

// Opens the candidate, or reports what is wrong with it.
FoundLibrary open(const std::string& candidate, const LibraryVersion& version_of) {
  FoundLibrary library;
  SharedLibrary file({candidate});
  if (file.handle() == nullptr) {
    library.error = file.error();  // names the file
    return library;
  }
  try {
    library.version = version_of(file);
    library.handle = file.handle();
    library.path = file.path();
  } catch (const std::runtime_error& error) {
    library.error = fmt::format("{}: {}", candidate, error.what());
    file.close();
  }
  return library;
}

}  // namespace

LibraryPlaces library_places(const LibraryName& name) {
  LibraryPlaces places;
  places.given = environment(name.variable);
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (std::string root = environment(variable); !root.empty()) {
      places.environments.push_back(std::move(root));
    }
  }
  return places;
}

std::vector<std::string> library_candidates(const LibraryName& name, const LibraryPlaces& places) {
  if (!places.given.empty()) {
    const fs::path given = fs::absolute(places.given);  // the loader would search for a bare name
    return {fs::is_directory(given) ? given / name.file : given};
  }
  std::vector<std::string> candidates;
  for (const std::string& root : places.environments) add_from_environment(name, root, candidates);
  candidates.emplace_back(name.file);
  const fs::path in_toolkit = fs::path(places.toolkit) / name.file;
  if (!places.toolkit.empty() && is_there(in_toolkit)) candidates.push_back(in_toolkit);
  return candidates;
}

FoundLibrary open_library(const LibraryName& name, const std::vector<std::string>& candidates,
                          const LibraryVersion& version_of) {
  FoundLibrary none;
  none.error = fmt::format("{} cannot be opened: ", name.title);
  for (const std::string& candidate : candidates) {
    FoundLibrary library = open(candidate, version_of);
    if (library.handle != nullptr) return library;
    none.error += (&candidate == candidates.data() ? "" : "; ") + library.error;
  }
  return none;
}

std::string other_place(const LibraryName& name, const LibraryPlaces& places) {
  if (!places.given.empty()) return "";
  return fmt::format("; {} PATH or the variable {} can name another place", name.option,
                     name.variable);
}

void give_library(const LibraryName& name, const std::string& path) {
  setenv(name.variable, fs::absolute(path).c_str(), 1);
}

}  // namespace flashbench
