// The descriptor by which a kernel of our own is listed, chosen, launched and accounted for.
// Kernels know tensors and launch arguments; nothing of JSON, the command line or timing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "device/device.h"

namespace flashbench::kernels {

struct AttentionKernel {
  std::string_view name;  // e.g. "cpu_tiled_forward"
  DeviceKind device;
  Pass pass;

  // A sentence that says why this problem cannot run; empty if it can.
  std::optional<std::string> (*why_unsupported)(const Problem&, const DeviceInfo&);

  // The kernel with its choices for this problem, e.g. "cpu_tiled_forward 256x256 AVX3".
  std::string (*variant)(const Problem&, const DeviceInfo&);

  size_t (*workspace_bytes)(const Problem&, const DeviceInfo&);

  // Bytes requested from Q, K, V, ... and the workspace by the real tile loop.
  int64_t (*requested_bytes)(const Problem&, const DeviceInfo&);

  void (*launch)(const Problem&, const Inputs&, const Outputs&, void* workspace, Stream);
};

// Every kernel of our own in this build (kernels/list.cpp).
std::span<const AttentionKernel* const> all_kernels();

}  // namespace flashbench::kernels
