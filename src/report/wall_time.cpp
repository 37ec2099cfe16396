#include "report/wall_time.h"

#include <algorithm>

namespace flashbench {

void WallTime::add(std::string_view phase, double seconds) {
  const auto known = std::find_if(phases_.begin(), phases_.end(),
                                  [&](const auto& entry) { return entry.first == phase; });
  if (known == phases_.end()) {
    phases_.emplace_back(phase, seconds);
  } else {
    known->second += seconds;
  }
}

void WallTime::add(const WallTime& other) {
  for (const auto& [phase, seconds] : other.phases_) add(phase, seconds);
}

double WallTime::total() const {
  double sum = 0;
  for (const auto& [phase, seconds] : phases_) sum += seconds;
  return sum;
}

PhaseClock::Phase::Phase(PhaseClock& clock, std::string name) : clock_(clock) {
  clock_.settle();
  clock_.open_.push_back(std::move(name));
}

PhaseClock::Phase::~Phase() {
  clock_.settle();
  clock_.open_.pop_back();
}

WallTime PhaseClock::take() {
  settle();
  return std::exchange(wall_, {});
}

void PhaseClock::settle() {
  const auto now = Clock::now();
  if (!open_.empty()) {
    wall_.add(open_.back(), std::chrono::duration<double>(now - since_).count());
  }
  since_ = now;
}

}  // namespace flashbench
