// The requirements of the sm80 kernels on problems and tensors.
#pragma once

#include <optional>
#include <string>

#include "attention/problem.h"
#include "device/device.h"

namespace flashbench::kernels::sm80 {

// For both passes; see AttentionKernel.
std::optional<std::string> why_unsupported(const Problem&, const DeviceInfo&);

}  // namespace flashbench::kernels::sm80
