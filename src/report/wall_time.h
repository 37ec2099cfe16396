// Where the time that a sweep takes goes.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flashbench {

// Wall seconds by phase, in the order in which phases first came up.
class WallTime {
 public:
  void add(std::string_view phase, double seconds);
  void add(const WallTime&);

  double total() const;
  const std::vector<std::pair<std::string, double>>& phases() const { return phases_; }

 private:
  std::vector<std::pair<std::string, double>> phases_;
};

// Tells phases apart while they run. One that begins within another takes its time from that one.
class PhaseClock {
 public:
  // In its phase for as long as it lives.
  class Phase {
   public:
    Phase(PhaseClock& clock, std::string name);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    PhaseClock& clock_;
  };

  // What has been since the last call.
  WallTime take();

 private:
  using Clock = std::chrono::steady_clock;

  // Gives the time since the last call to the innermost phase.
  void settle();

  WallTime wall_;
  std::vector<std::string> open_;
  Clock::time_point since_ = Clock::now();
};

}  // namespace flashbench
