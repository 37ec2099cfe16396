// An H200 as kernels are told of it, for tests of what they choose.
#pragma once

#include "device/device.h"

namespace flashbench::kernels {

inline DeviceInfo hopper() {
  DeviceInfo info;
  info.kind = DeviceKind::cuda;
  info.compute_capability = 90;
  info.threads = 132;
  info.shared_memory_bytes = 227 << 10;
  return info;
}

}  // namespace flashbench::kernels
