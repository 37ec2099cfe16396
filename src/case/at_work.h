// Reports to a case's watch which provider is at work.
#pragma once

#include "case/case_run.h"

namespace flashbench {

inline void tell(const Watch& watch, int provider) {
  if (watch.at_work != nullptr) watch.at_work->store(provider, std::memory_order_relaxed);
}

// If the watch listens, a case ends with a provider that left something running.
inline void tell_left_running(const Watch& watch, int provider) {
  if (watch.left_running != nullptr) watch.left_running->store(provider, std::memory_order_relaxed);
}
inline bool is_left_running(const Watch& watch) {
  return watch.left_running != nullptr && watch.left_running->load(std::memory_order_relaxed) >= 0;
}

// Marks the provider as at work during its lifetime.
class AtWork {
 public:
  AtWork(const Watch& watch, int provider) : watch_(watch) { tell(watch_, provider); }
  ~AtWork() { tell(watch_, -1); }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

 private:
  const Watch& watch_;
};

}  // namespace flashbench
