// NVIDIA's management library, opened at run time: clocks, power and why they are held down.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/device.h"

namespace flashbench {

class Nvml {
 public:
  // Of the GPU at this PCI address, e.g. "0000:3b:00.0". Null where the library or the GPU in it is
  // missing: then there is no state to record.
  static std::unique_ptr<Nvml> open(const std::string& pci_bus_id);
  ~Nvml();

  // Empty where the GPU does not tell.
  std::optional<DeviceState> state() const;

  // Joules since the driver was loaded; empty where the GPU does not tell.
  std::optional<double> energy() const;

  // Watts; 0 where the GPU does not tell.
  double power_limit() const;
  std::string driver_version() const;

 private:
  struct Library;
  Nvml(std::unique_ptr<Library> library, void* device);

  std::unique_ptr<Library> library_;
  void* device_;
};

}  // namespace flashbench
