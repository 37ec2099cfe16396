#include "measure/energy.h"

#include <chrono>

namespace flashbench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPaceSeconds = 0.02;  // of runs to estimate the time of a run
constexpr double kLeadSeconds = 0.05;  // of queued launches: reading the energy takes 5 ms
constexpr double kLookSeconds = 0.01;  // between reads of the counter, if the host only launches
constexpr double kTickSeconds = 1;     // the longest wait for a tick before giving up

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Estimates the seconds per run in a sequence of runs.
double pace(Device& device, const std::function<void()>& run) {
  for (int runs = 1;; runs *= 2) {
    device.synchronize();
    const auto start = Clock::now();
    for (int i = 0; i < runs; ++i) run();
    device.synchronize();
    const double seconds = seconds_since(start);
    if (seconds >= kPaceSeconds) return seconds / runs;
  }
}

}  // namespace

std::optional<Energy> measure_energy(Device& device, const std::function<void()>& run,
                                     double seconds, const std::function<bool()>& interrupted) {
  if (!device.energy()) return std::nullopt;
  const double expected = pace(device, run);

  struct Tick {
    double joules, seconds;
  };
  std::optional<Tick> first;
  Tick last{*device.energy(), 0};
  std::optional<Energy> result;
  int64_t runs = 0;
  double last_look = 0;
  const auto start = Clock::now();
  while (!result && !interrupted()) {
    const double now = seconds_since(start);
    const bool behind = static_cast<double>(runs) * expected < now + kLeadSeconds;
    if (behind && now - last_look < kLookSeconds) {
      run();
      ++runs;
      continue;
    }
    const double joules = device.energy().value_or(last.joules);
    last_look = seconds_since(start);
    if (now - last.seconds > kTickSeconds) break;
    if (joules == last.joules) continue;
    last = {joules, last_look};
    if (!first) {
      first = last;
    } else if (last.seconds - first->seconds >= seconds) {
      result =
          Energy{.joules = last.joules - first->joules, .seconds = last.seconds - first->seconds};
    }
  }
  device.synchronize();
  if (result) result->seconds_per_run = seconds_since(start) / static_cast<double>(runs);
  return result;
}

}  // namespace flashbench
