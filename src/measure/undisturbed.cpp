#include "measure/undisturbed.h"

#include <algorithm>

namespace flashbench {

namespace {

// The wait that a sample may have: 1% of its time, or the time to wake a few threads if that is
// little of it. A thread that loses its core to another process loses it for milliseconds, but a
// sample of a tenth of one has waited for most of its time before that shows.
constexpr double kShareOfSample = 0.01;
constexpr double kWakeUpSeconds = 1e-4, kShareToWakeUp = 0.05;

bool is_beside_load(const Measurement& measurement) {
  return measurement.load && is_heavy(*measurement.load);
}

}  // namespace

std::vector<bool> undisturbed(const Measurement& measurement) {
  std::vector<bool> result(measurement.seconds.size(), true);
  if (!is_beside_load(measurement)) return result;
  for (size_t i = 0; i < measurement.core_times.size(); ++i) {
    const double seconds = measurement.seconds[i];
    const double allowed =
        std::max(kShareOfSample * seconds, std::min(kWakeUpSeconds, kShareToWakeUp * seconds));
    result[i] = measurement.core_times[i].waited <= allowed;
  }
  return result;
}

bool is_blind(const Measurement& measurement) {
  return is_beside_load(measurement) && measurement.core_times.empty();
}

}  // namespace flashbench
