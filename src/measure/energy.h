// What a run takes from the wall, by the device's own energy counter.
#pragma once

#include <functional>
#include <optional>

#include "device/device.h"

namespace flashbench {

// Of the whole board, while runs follow on one another without a pause.
struct Energy {
  double joules = 0;           // between two ticks of the counter
  double seconds = 0;          // between them
  double seconds_per_run = 0;  // of all runs

  double joules_per_run() const { return joules / seconds * seconds_per_run; }
};

// Keeps the device at work on one run after the other, from one tick of the counter to another at
// least `seconds` later, so that how seldom it ticks (tens of milliseconds) does not matter. Empty
// where the device does not tell, or was interrupted.
std::optional<Energy> measure_energy(Device&, const std::function<void()>& run, double seconds,
                                     const std::function<bool()>& interrupted);

}  // namespace flashbench
