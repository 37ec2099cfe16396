// The CUDA side of a build without CUDA.
#include "device/cuda.h"

namespace flashbench {

std::optional<std::string> why_no_cuda() {
  return "this flashbench was built without CUDA: run on the CPU with --device cpu, or build with "
         "CUDA on a machine that has an NVIDIA GPU";
}

std::unique_ptr<Device> make_cuda_device(int) {
  throw NoDevice(*why_no_cuda());
}

std::unique_ptr<Device> make_cuda_devices(const std::vector<int>&) {
  throw NoDevice(*why_no_cuda());
}

std::unique_ptr<DeviceGroup> make_cuda_group(Device&, int) {
  return nullptr;
}

std::unique_ptr<DeviceGroup> make_nccl_group(Device&, int) {
  return nullptr;
}

}  // namespace flashbench
