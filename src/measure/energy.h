// The energy of a run, by the device's own counter.
#pragma once

#include <functional>
#include <optional>

#include "device/device.h"

namespace flashbench {

// The energy of the whole board during back-to-back runs.
struct Energy {
  double joules = 0;           // between two ticks of the counter
  double seconds = 0;          // between the same ticks
  double seconds_per_run = 0;  // over all runs

  double joules_per_run() const { return joules / seconds * seconds_per_run; }
};

// Runs back to back from one tick of the counter to another one at least `seconds` later, so that
// its low resolution (tens of milliseconds) does not matter. Empty if the device does not report
// its energy, or if interrupted.
std::optional<Energy> measure_energy(Device&, const std::function<void()>& run, double seconds,
                                     const std::function<bool()>& interrupted);

}  // namespace flashbench
