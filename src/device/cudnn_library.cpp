#include "device/cudnn_library.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "attention/error.h"
#include "host/shared_library.h"

namespace flashbench {

namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libcudnn.so.9";
constexpr const char* kVariable = "FLASHBENCH_CUDNN";
constexpr size_t kLeastVersion = 90000;

bool is_there(const fs::path& path) {
  std::error_code unimportant;
  return fs::exists(path, unimportant);
}

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

// Adds the folder in which pip installs cuDNN: lib/python3.N/site-packages/nvidia/cudnn/lib.
void add_from_environment(const fs::path& root, std::vector<std::string>& candidates) {
  std::error_code unimportant;
  for (const auto& entry : fs::directory_iterator(root / "lib", unimportant)) {
    if (!entry.path().filename().string().starts_with("python")) continue;
    const fs::path file = entry.path() / "site-packages/nvidia/cudnn/lib" / kName;
    if (is_there(file)) candidates.push_back(file);
  }
}

// Decodes cuDNN's version number: 91900 is 9.19.0, 8907 is 8.9.7.
std::string version_text(size_t number) {
  const size_t major = number >= kLeastVersion ? number / 10000 : number / 1000;
  const size_t minor = number >= kLeastVersion ? number / 100 % 100 : number / 100 % 10;
  return fmt::format("{}.{}.{}", major, minor, number % 100);
}

// Opens the candidate, or reports what is wrong with it.
CudnnLibrary open(const std::string& candidate) {
  CudnnLibrary library;
  SharedLibrary file({candidate});
  size_t (*version)() = nullptr;
  file.find(version, "cudnnGetVersion");
  if (file.handle() == nullptr) {
    library.error = file.error();  // names the file
  } else if (version == nullptr) {
    library.error = fmt::format("{}: {}", candidate, file.error());
  } else if (version() < kLeastVersion) {
    library.error = fmt::format("{}: it is cuDNN {}; {} or later is needed", candidate,
                                version_text(version()), version_text(kLeastVersion));
  }
  if (!library.error.empty()) {
    file.close();
    return library;
  }
  library.handle = file.handle();
  library.path = file.path();
  library.version = version_text(version());
  return library;
}

}  // namespace

CudnnPlaces cudnn_places() {
  CudnnPlaces places;
  places.given = environment(kVariable);
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (std::string root = environment(variable); !root.empty()) {
      places.environments.push_back(std::move(root));
    }
  }
  places.toolkit = FLASHBENCH_CUDA_LIBRARY_DIR;
  return places;
}

std::vector<std::string> cudnn_candidates(const CudnnPlaces& places) {
  if (!places.given.empty()) {
    const fs::path given = fs::absolute(places.given);  // the loader would search for a bare name
    return {fs::is_directory(given) ? given / kName : given};
  }
  std::vector<std::string> candidates;
  for (const std::string& root : places.environments) add_from_environment(root, candidates);
  candidates.push_back(kName);
  const fs::path in_toolkit = fs::path(places.toolkit) / kName;
  if (!places.toolkit.empty() && is_there(in_toolkit)) candidates.push_back(in_toolkit);
  return candidates;
}

CudnnLibrary open_cudnn(const std::vector<std::string>& candidates) {
  CudnnLibrary none;
  none.error = "cuDNN 9 cannot be opened: ";
  for (const std::string& candidate : candidates) {
    CudnnLibrary library = open(candidate);
    if (library.handle != nullptr) return library;
    none.error += (&candidate == candidates.data() ? "" : "; ") + library.error;
  }
  return none;
}

const CudnnLibrary& cudnn_library() {
  static const CudnnLibrary library = [] {
    const CudnnPlaces places = cudnn_places();
    CudnnLibrary found = open_cudnn(cudnn_candidates(places));
    if (found.handle == nullptr && places.given.empty()) {
      found.error +=
          fmt::format("; --cudnn PATH or the variable {} can name another place", kVariable);
    }
    return found;
  }();
  return library;
}

void use_cudnn(const std::string& path) {
  setenv(kVariable, fs::absolute(path).c_str(), 1);
  if (!cudnn_library().error.empty()) throw BadInput("--cudnn: " + cudnn_library().error);
}

}  // namespace flashbench
