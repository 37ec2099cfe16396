// The tensors of one problem in device memory.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/tensors.h"
#include "device/device.h"

namespace flashbench {

// A problem's inputs on the device, filled from the host's.
class DeviceInputs {
 public:
  DeviceInputs(Device& device, const Problem& problem, const Inputs& host);

  Inputs view() const;
  void refill(const Inputs& host);

  // A hash over every byte: shows whether a provider wrote where it may only read.
  uint64_t hash() const;

 private:
  Device* device_;
  Problem problem_;
  Buffer q_, k_, v_, o_, d_o_, logsumexp_;
};

// Output tensors in host memory.
class HostOutputs {
 public:
  explicit HostOutputs(const Problem& problem);
  Outputs view();
  bool operator==(const HostOutputs&) const = default;  // bit for bit

 private:
  friend class DeviceOutputs;
  Problem problem_;
  std::vector<std::byte> o_, dq_, dk_, dv_;
  std::vector<std::byte> logsumexp_;
};

// A problem's outputs on the device; they start poisoned.
class DeviceOutputs {
 public:
  DeviceOutputs(Device& device, const Problem& problem);

  Outputs view() const;
  void poison();
  HostOutputs to_host() const;

  // Elements that still hold the poison: nothing wrote them.
  int64_t unwritten_elements() const;

 private:
  Device* device_;
  Problem problem_;
  Buffer o_, logsumexp_, dq_, dk_, dv_;
};

}  // namespace flashbench
