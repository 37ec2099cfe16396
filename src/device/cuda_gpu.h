// What is asked of GPUs before they become devices, and which one a thread works with.
#pragma once

#include <string>

#include "device/device.h"

namespace flashbench {

// Throws NoDevice if there is no such GPU, or if it is too old.
void require_gpu(int index);

DeviceInfo describe_gpu(int index);

std::string gpu_bus_id(int index);

// Throws NoDevice unless these can read each other's memory. Where they cannot, copies would go
// through the host, silently and slowly.
void enable_peer_access(int gpu, int other);

// Whether a kernel of `gpu` can add to floats in the memory of the other: NVLink carries atomic
// additions, PCIe does not.
bool adds_to_peer(int gpu, int other);

// Makes a GPU the one that this thread works with, until the end of the scope.
class WorkOnGpu {
 public:
  explicit WorkOnGpu(int gpu);
  ~WorkOnGpu();
  WorkOnGpu(const WorkOnGpu&) = delete;
  WorkOnGpu& operator=(const WorkOnGpu&) = delete;

 private:
  int before_ = 0;
};

}  // namespace flashbench
