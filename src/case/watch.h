// What watches a case while it runs, and what the case tells it.
#pragma once

#include <atomic>
#include <functional>

#include "device/step_board.h"

namespace flashbench {

// The connection between a case and its observer.
struct Watch {
  std::function<bool()> interrupted = [] { return false; };  // polled; if true, the case ends soon
  // Receives the index of the provider at work in the list; -1 if none is.
  std::atomic<int>* at_work = nullptr;
  // Receives the index of a provider that left threads or processes at work. The case then ends,
  // because nothing else can be timed beside them.
  std::atomic<int>* left_running = nullptr;
  // Receives what the devices are at that share a problem.
  StepBoard* steps = nullptr;
};

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
