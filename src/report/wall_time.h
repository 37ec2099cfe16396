// Accounts for the wall time of a sweep.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flashbench {

// Wall seconds by phase, in the order in which the phases first occurred.
class WallTime {
 public:
  void add(std::string_view phase, double seconds);
  void add(const WallTime&);

  double total() const;
  const std::vector<std::pair<std::string, double>>& phases() const { return phases_; }

 private:
  std::vector<std::pair<std::string, double>> phases_;
};

// Measures phases while they run. A phase within another takes its time from the outer one.
class PhaseClock {
 public:
  // The phase lasts as long as this object.
  class Phase {
   public:
    Phase(PhaseClock& clock, std::string name);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    PhaseClock& clock_;
  };

  // Returns the time since the last call.
  WallTime take();

 private:
  using Clock = std::chrono::steady_clock;

  // Adds the time since the last call to the innermost phase.
  void settle();

  WallTime wall_;
  std::vector<std::string> open_;
  Clock::time_point since_ = Clock::now();
};

}  // namespace flashbench
