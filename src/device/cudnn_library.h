// cuDNN, opened when first needed: the binary starts, and all but cuDNN's provider works, without
// it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace flashbench {

// Where libcudnn is looked for, in this order; what is empty is not looked at.
struct CudnnPlaces {
  std::string given;                      // the library or its folder: then nowhere else
  std::vector<std::string> environments;  // roots of Python environments with cuDNN's package
  // The loader's own path (LD_LIBRARY_PATH, the system's cache) comes here.
  std::string toolkit;  // folder of the CUDA toolkit's libraries
};

// By FLASHBENCH_CUDNN, VIRTUAL_ENV and CONDA_PREFIX, and the toolkit that this was built with.
CudnnPlaces cudnn_places();

// Its file names in these places that are worth opening, in order; a bare name is the loader's.
std::vector<std::string> cudnn_candidates(const CudnnPlaces&);

struct CudnnLibrary {
  void* handle = nullptr;  // dlopen's
  std::string path;        // of the file
  std::string version;     // e.g. "9.19.0"
  std::string error;       // a sentence that says why there is none; empty if there is a handle
};

// The first of these that can be opened and is cuDNN 9 or later.
CudnnLibrary open_cudnn(const std::vector<std::string>& candidates);

// The one in cudnn_places(), looked for when it is first asked for; stays open.
const CudnnLibrary& cudnn_library();

// From now on, cuDNN is the one at this path: here, and in the processes that this one starts. To
// be called before cudnn_library(). Throws BadInput if it cannot be opened.
void use_cudnn(const std::string& path);

}  // namespace flashbench
