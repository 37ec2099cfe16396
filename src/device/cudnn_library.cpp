#include "device/cudnn_library.h"

#include <fmt/format.h>

#include <stdexcept>

#include "attention/error.h"

namespace flashbench {

namespace {

constexpr LibraryName kCudnn{"cuDNN 9", "libcudnn.so.9", "cudnn", "FLASHBENCH_CUDNN", "--cudnn"};
constexpr size_t kLeastCudnn = 90000;

// Decodes cuDNN's version number: 91900 is 9.19.0, 8907 is 8.9.7.
std::string cudnn_version_text(size_t number) {
  const size_t major = number >= kLeastCudnn ? number / 10000 : number / 1000;
  const size_t minor = number >= kLeastCudnn ? number / 100 % 100 : number / 100 % 10;
  return fmt::format("{}.{}.{}", major, minor, number % 100);
}

std::string cudnn_version(SharedLibrary& file) {
  size_t (*version)() = nullptr;
  file.find(version, "cudnnGetVersion");
  if (version == nullptr) throw std::runtime_error(file.error());
  if (version() < kLeastCudnn) {
    throw std::runtime_error(fmt::format("it is cuDNN {}; {} or later is needed",
                                         cudnn_version_text(version()),
                                         cudnn_version_text(kLeastCudnn)));
  }
  return cudnn_version_text(version());
}

}  // namespace

LibraryPlaces cudnn_places() {
  LibraryPlaces places = library_places(kCudnn);
  places.toolkit = FLASHBENCH_CUDA_LIBRARY_DIR;
  return places;
}

std::vector<std::string> cudnn_candidates(const LibraryPlaces& places) {
  return library_candidates(kCudnn, places);
}

FoundLibrary open_cudnn(const std::vector<std::string>& candidates) {
  return open_library(kCudnn, candidates, cudnn_version);
}

const FoundLibrary& cudnn_library() {
  static const FoundLibrary library = [] {
    const LibraryPlaces places = cudnn_places();
    FoundLibrary found = open_cudnn(cudnn_candidates(places));
    if (found.handle == nullptr) found.error += other_place(kCudnn, places);
    return found;
  }();
  return library;
}

void use_cudnn(const std::string& path) {
  give_library(kCudnn, path);
  if (!cudnn_library().error.empty()) throw BadInput("--cudnn: " + cudnn_library().error);
}

}  // namespace flashbench
