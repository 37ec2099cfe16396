// cuDNN, opened when first needed. Without it the binary still starts, and only cuDNN's provider is
// absent.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace flashbench {

// The places to search for libcudnn, in this order; empty ones are skipped.
struct CudnnPlaces {
  std::string given;                      // the library or its folder; if set, the only place
  std::vector<std::string> environments;  // roots of Python environments with cuDNN's package
  // The loader's own path (LD_LIBRARY_PATH, the system's cache) comes between these.
  std::string toolkit;  // folder of the CUDA toolkit's libraries
};

// The places by FLASHBENCH_CUDNN, VIRTUAL_ENV and CONDA_PREFIX, and the toolkit that this was built
// with.
CudnnPlaces cudnn_places();

// The file names in these places that are worth opening, in order; the loader searches for a bare
// name.
std::vector<std::string> cudnn_candidates(const CudnnPlaces&);

struct CudnnLibrary {
  void* handle = nullptr;  // SharedLibrary::handle
  std::string path;        // of the file
  std::string version;     // e.g. "9.19.0"
  std::string error;       // a sentence that says why there is no handle; else empty
};

// Opens the first of these that is cuDNN 9 or later.
CudnnLibrary open_cudnn(const std::vector<std::string>& candidates);

// The library in cudnn_places(). Searched for at the first call; stays open.
const CudnnLibrary& cudnn_library();

// Makes this process, and the processes that it starts, use the cuDNN at this path. Call it before
// cudnn_library(). Throws BadInput if it cannot be opened.
void use_cudnn(const std::string& path);

}  // namespace flashbench
