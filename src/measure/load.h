// What else ran on the cores of this process meanwhile.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace flashbench {

// Of a stretch of time. Where the system is not said to keep a figure, it is empty.
struct Load {
  double seconds = 0;  // of the clock
  double cores = 0;    // that this process may run on
  double others = 0;   // seconds of those cores that other processes and interrupts had
  double stolen = 0;   // seconds of those cores that a hypervisor gave to other machines
  std::optional<double> stalled{};  // seconds in which anything on the machine waited for a core

  double others_cores() const { return others / seconds; }  // on average
  double stolen_cores() const { return stolen / seconds; }
};

// Of one stretch and another.
Load operator+(const Load&, const Load&);

// Others ran on more than 5% of the cores: what is timed then may have had to wait.
bool is_heavy(const Load&);

// "others used 1.3 of 2 cores", and what a hypervisor gave to other machines; empty where there is
// neither to speak of.
std::string told(const Load&);

// Seconds since the start that cores were busy, and that a hypervisor had them.
struct CoreSums {
  double busy = 0, stolen = 0, idle = 0;
};

// Of the cores with these numbers, from the text of /proc/stat; empty where one is missing.
std::optional<CoreSums> core_sums(std::string_view proc_stat, const std::vector<int>& cores);

// The total of the line "some" of /proc/pressure/cpu, in seconds; empty where it is missing.
std::optional<double> stalled_seconds(std::string_view pressure);

// Watches from its construction on.
class LoadWatch {
 public:
  // What this process runs is not others'; nor, where a device is given, what its threads run.
  explicit LoadWatch(Device* device = nullptr);

  // Empty where the system does not count (no /proc/stat, or one that stands still).
  std::optional<Load> so_far() const;

 private:
  struct Reading {
    std::chrono::steady_clock::time_point at;
    std::optional<CoreSums> sums;
    std::optional<double> stalled;
    double ours = 0;
  };
  double ours() const;
  Reading read() const;

  Device* device_;
  std::vector<int> cores_;
  Reading start_;
};

}  // namespace flashbench
