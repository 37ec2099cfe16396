// Tells a case's watch which provider is at work.
#pragma once

#include "sweep/case_run.h"

namespace flashbench {

inline void tell(const Watch& watch, int provider) {
  if (watch.at_work != nullptr) watch.at_work->store(provider, std::memory_order_relaxed);
}

// For as long as it lives.
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
