// Times several contenders in interleaved rounds, until the median of each is known well enough.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "measure/load.h"
#include "measure/options.h"

namespace flashbench {

// The work to be timed. The steps of one sample run in this order; only `run` is inside the clock.
struct Contender {
  std::function<void(bool)> at_work = [](bool) {
  };                             // called with true and false when any step begins and ends
  std::function<void()> before;  // brings outputs into their declared state, e.g. poisons them
  std::function<void()> run;
  std::function<void()> after;  // checks what the timed run left; throws to reject the contender
  bool prolongs = true;         // false: rounds end without regard to how well its median is known

  // Work that needs nothing before or after.
  static Contender of(std::function<void()> run) {
    return {.before = [] {}, .run = std::move(run), .after = [] {}};
  }
};

// Core time of the working threads during a sample, in seconds summed over threads: processor time,
// and time in which they were ready to run while others ran.
struct CoreTime {
  double ran = 0, waited = 0;
};

struct Measurement {
  std::vector<double> seconds;  // every sample, in the order taken
  int warmup_runs = 0;
  CacheState cache = CacheState::warm;
  std::string stop_reason;  // "interval", "max_samples", "time_cap" or "interrupted"

  // The number of samples taken by each worker process, in order; the sum is the number of samples.
  // Empty: one process took them all. Sample i of every contender is from the same round of its
  // process, so that two contenders of a case can be compared round by round.
  std::vector<int> samples_per_process{};

  // The device's state right after each sample, if the device reports it.
  std::vector<DeviceState> states{};

  // The core time of each sample, if the device reports it. A sample in which threads waited for a
  // core is longer than its work takes.
  std::vector<CoreTime> core_times{};

  // What else ran on the cores from the warm-up to the last sample; empty if unknown.
  std::optional<Load> load{};

  // How the work was launched (device/device.h, Replay).
  int graph_nodes = 0;
  std::optional<double> host_seconds{};
};

// The median over the samples; empty if the device does not report its state.
std::optional<double> median_state(const Measurement&, double DeviceState::*member);

// The outcome of one contender: a measurement, or the error that `run` or `after` threw. Seconds
// are wall-clock time.
struct Timing {
  Measurement measurement;
  std::exception_ptr error;
  double warmup_seconds = 0, sample_seconds = 0;
};

// Warms each contender up (at least warmup_runs and warmup_seconds, and until the medians of the
// two halves of its recent runs differ by less than 1%, with a cap), then takes rounds: each round
// runs every contender once, in an order shuffled by `seed`. Cold: caches are evicted before each
// sample; warm: an untimed run of the same contender comes right before. Rounds continue until
// every contender that prolongs them has enough samples and a narrow enough interval, or has used
// options.max_seconds.
// `interrupted` is polled between samples.
std::vector<Timing> measure_interleaved(Device& device, const std::vector<Contender>& contenders,
                                        const MeasureOptions& options, uint64_t seed,
                                        const std::function<bool()>& interrupted);

}  // namespace flashbench
