// Shows what each of several devices is at, so that whoever ends a run that hangs can name the rank
// and its step. It may lie in memory that two processes share: it has no pointers.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "attention/problem.h"

namespace flashbench {

enum class StepWork : int8_t {
  pull_keys,
  pull_heads,
  attend_queries,
  attend_keys,
  attend_heads,
  merge_heads,
  sum_gradients,
};

// Step `number` of `count`, from 1: this work on up to two ranges of queries, keys or heads.
struct RankStep {
  int number = 1, count = 1;
  StepWork work = StepWork::pull_keys;
  std::array<RowRange, 2> ranges{};

  // "step 3 of 4 (pull of keys 4096 to 8191)"
  std::string text() const;
};

class StepBoard {
 public:
  using Clock = std::chrono::steady_clock;

  // The rank begins a step; in it, it waits until the others are there; it is done. Any thread may
  // call these.
  void begin(int rank, const RankStep&);
  void wait_for_others(int rank);
  void end(int rank);

  // "rank 2 did not finish step 3 of 4 (pull of keys 4096 to 8191) in 4.9 s": of the rank that has
  // been at it for longest; one that waits for others only if all do. Empty if every rank is done.
  std::optional<std::string> unfinished(Clock::time_point now = Clock::now()) const;

 private:
  enum class State : int8_t { done, at_work, waiting };
  struct Slot {
    std::atomic<State> state;
    std::atomic<StepWork> work;
    std::atomic<int16_t> number, count;
    std::array<std::atomic<int64_t>, 4> bounds;  // of both ranges
    std::atomic<Clock::rep> since;
  };
  Slot& slot(int rank) { return slots_[static_cast<size_t>(rank)]; }

  std::array<Slot, kMaxGpus> slots_{};
};

}  // namespace flashbench
