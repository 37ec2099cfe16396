#include "device/cuda.h"
#include "device/device.h"
#include "device/device_group.h"
#include "device/gpu_list.h"

namespace flashbench {

std::unique_ptr<Device> make_device(std::string_view selector, int threads) {
  if (selector == "cpu" || (selector == "auto" && why_no_cuda())) return make_host_device(threads);
  return make_cuda_devices(selector == "auto" ? std::vector{0} : gpu_list(selector));
}

std::unique_ptr<DeviceGroup> make_group(Device& device, int ranks) {
  if (device.info().kind == DeviceKind::cpu) return make_host_group(device, ranks);
  return make_cuda_group(device, ranks);
}

}  // namespace flashbench
