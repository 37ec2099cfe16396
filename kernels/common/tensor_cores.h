// What the kernels of 16-bit products on tensor cores require of a problem and a GPU.
#pragma once

#include <optional>
#include <string>

#include "attention/problem.h"
#include "device/device.h"

namespace flashbench::kernels {

// For both passes; see AttentionKernel.
std::optional<std::string> why_no_tensor_cores(const Problem&, const DeviceInfo&);

}  // namespace flashbench::kernels
