// The functions that builds with and without CUDA implement differently.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/device.h"

namespace flashbench {

// A sentence that says why no GPU can be used, and what to do; empty if one can.
std::optional<std::string> why_no_cuda();

// GPU number `index`. Throws NoDevice.
std::unique_ptr<Device> make_cuda_device(int index);

}  // namespace flashbench
