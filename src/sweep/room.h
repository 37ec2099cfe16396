// Whether a case's tensors fit into the host's memory, before any of them is made.
#pragma once

#include <string>

#include "attention/problem.h"
#include "device/device.h"

namespace flashbench {

// Host bytes that a case takes whatever provider runs it: inputs and outputs on the host, the
// outputs twice for comparing; and on the device, where that is the host.
int64_t host_bytes_needed(const Problem&, DeviceKind);

// A sentence with what is needed and what is available; empty if it fits.
std::string why_no_room(const Problem&, DeviceKind);

}  // namespace flashbench
