// cuDNN, opened when first needed. Without it the binary still starts, and only cuDNN's provider is
// absent.
#pragma once

#include <string>
#include <vector>

#include "device/library_search.h"

namespace flashbench {

// The places by FLASHBENCH_CUDNN, VIRTUAL_ENV and CONDA_PREFIX, and the toolkit that this was built
// with.
LibraryPlaces cudnn_places();

std::vector<std::string> cudnn_candidates(const LibraryPlaces&);

// Opens the first of these that is cuDNN 9 or later.
FoundLibrary open_cudnn(const std::vector<std::string>& candidates);

// The library in cudnn_places(). Searched for at the first call; stays open.
const FoundLibrary& cudnn_library();

// Makes this process, and the processes that it starts, use the cuDNN at this path. Call it before
// cudnn_library(). Throws BadInput if it cannot be opened.
void use_cudnn(const std::string& path);

}  // namespace flashbench
