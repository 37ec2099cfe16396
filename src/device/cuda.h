// The functions that builds with and without CUDA implement differently.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/device_group.h"

namespace flashbench {

// A sentence that says why no GPU can be used, and what to do; empty if one can.
std::optional<std::string> why_no_cuda();

// GPU number `index`. Throws NoDevice.
std::unique_ptr<Device> make_cuda_device(int index);

// The first of these GPUs, and all of them for problems that several devices share. Throws
// NoDevice.
std::unique_ptr<Device> make_cuda_devices(const std::vector<int>& gpus);

// The first `ranks` of the GPUs that share problems with this one; null if they are fewer. Runs are
// ordered with the work on the device's stream, and return when all is queued, as launches do.
std::unique_ptr<DeviceGroup> make_cuda_group(Device&, int ranks);

}  // namespace flashbench
