// Measures what else ran on the cores of this process.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace flashbench {

// The load over a period of time. A figure is empty if the system is not known to record it.
struct Load {
  double seconds = 0;               // wall-clock time
  double cores = 0;                 // cores that this process may run on
  double others = 0;                // core seconds used by other processes and interrupts
  double stolen = 0;                // core seconds that a hypervisor gave to other machines
  std::optional<double> stalled{};  // seconds in which anything on the machine waited for a core

  double others_cores() const { return others / seconds; }  // on average
  double stolen_cores() const { return stolen / seconds; }
};

// The load of two periods together.
Load operator+(const Load&, const Load&);

// Whether others ran on more than 5% of the cores: work that was timed then may have had to wait.
bool is_heavy(const Load&);

// "others used 1.3 of 2 cores", and what a hypervisor gave to other machines; empty if neither is
// significant.
std::string told(const Load&);

// Seconds since boot that cores were busy, taken by a hypervisor, or idle.
struct CoreSums {
  double busy = 0, stolen = 0, idle = 0;
};

// The sums over the cores with these numbers, from the text of /proc/stat; empty if one is missing.
std::optional<CoreSums> core_sums(std::string_view proc_stat, const std::vector<int>& cores);

// The total of the line "some" of /proc/pressure/cpu, in seconds; empty if it is missing.
std::optional<double> stalled_seconds(std::string_view pressure);

// Measures the load since its construction.
class LoadWatch {
 public:
  // Work of this process does not count as others', nor, if a device is given, work of its threads.
  explicit LoadWatch(Device* device = nullptr);

  // Empty if the system does not count (no /proc/stat, or one that does not change).
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
