// NVIDIA's libraries that Python packages bring, too: where they are searched for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "host/shared_library.h"

namespace flashbench {

struct LibraryName {
  const char* title;     // e.g. "cuDNN 9"
  const char* file;      // e.g. "libcudnn.so.9"
  const char* package;   // its folder below nvidia/ in a Python environment, e.g. "cudnn"
  const char* variable;  // of the environment, e.g. "FLASHBENCH_CUDNN"
  const char* option;    // e.g. "--cudnn"
};

// The places to search, in this order; empty ones are skipped.
struct LibraryPlaces {
  std::string given;                      // the library or its folder; if set, the only place
  std::vector<std::string> environments;  // roots of Python environments
  // The loader's own path (LD_LIBRARY_PATH, the system's cache) comes between these.
  std::string toolkit;  // folder of the CUDA toolkit's libraries
};

struct FoundLibrary {
  void* handle = nullptr;  // SharedLibrary::handle
  std::string path;        // of the file
  std::string version;     // e.g. "9.19.0"
  std::string error;       // a sentence that says why there is no handle; else empty
};

// The places by the library's variable, VIRTUAL_ENV and CONDA_PREFIX; no toolkit.
LibraryPlaces library_places(const LibraryName&);

// The file names in these places that are worth opening, in order; the loader searches for a bare
// name.
std::vector<std::string> library_candidates(const LibraryName&, const LibraryPlaces&);

// Returns the version of an open file, and throws std::runtime_error, which says what is wrong with
// the file, if it cannot be used.
using LibraryVersion = std::function<std::string(SharedLibrary&)>;

// Opens the first of these that can be used.
FoundLibrary open_library(const LibraryName&, const std::vector<std::string>& candidates,
                          const LibraryVersion&);

// What an error should end with if the library was not found: how to name another place.
std::string other_place(const LibraryName&, const LibraryPlaces&);

// Makes this process, and those that it starts, search for the library at this path alone.
void give_library(const LibraryName&, const std::string& path);

}  // namespace flashbench
