// Checks that a case's tensors fit the host's memory, before any of them is made.
#pragma once

#include <string>

#include "attention/problem.h"
#include "device/device.h"

namespace flashbench {

// Host memory that a case needs for any provider: inputs and outputs on the host, with outputs
// twice for comparison; the inputs of audits; what bytes mean, in fp32; and what is on the device,
// if it is the host.
int64_t host_bytes_needed(const Problem&, DeviceKind);

// A sentence with what is needed and what is available; empty if it fits.
std::string why_no_room(const Problem&, DeviceKind);

}  // namespace flashbench
