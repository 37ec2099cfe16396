// NVIDIA's management library, opened at run time: clocks, power, and the reasons for throttling.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/device.h"

namespace flashbench {

class Nvml {
 public:
  // Opens the GPU at this PCI address, e.g. "0000:3b:00.0". Returns null if the library or the GPU
  // in it is missing: then there is no state to record.
  static std::unique_ptr<Nvml> open(const std::string& pci_bus_id);
  ~Nvml();

  // Empty if the GPU does not report it.
  std::optional<DeviceState> state() const;

  // Joules since the driver was loaded; empty if the GPU does not report them.
  std::optional<double> energy() const;

  // Watts; 0 if the GPU does not report it.
  double power_limit() const;
  std::string driver_version() const;

 private:
  struct Library;
  Nvml(std::unique_ptr<Library> library, void* device);

  std::unique_ptr<Library> library_;
  void* device_;
};

}  // namespace flashbench
