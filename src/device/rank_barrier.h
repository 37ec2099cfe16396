// Where the threads of several ranks wait for each other.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <vector>

namespace flashbench {

// Once a rank has failed, none waits any more.
class RankBarrier {
 public:
  // A rank that waits longer than this for the others has failed.
  RankBarrier(int ranks, double most_seconds);

  // Before a run of all ranks.
  void begin();

  // Waits until every rank is here. Throws RankFailed if another rank has failed, and
  // std::runtime_error, which names those that are missing, if they take too long.
  void arrive(int rank);

  // Keeps the first failure: those after it may be RankFailed.
  void fail(std::exception_ptr);

  // Of the run; null if none has failed.
  std::exception_ptr failure();

 private:
  std::vector<int> missing() const;

  const double most_seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> here_;
  size_t count_ = 0;  // of those here
  long round_ = 0;
  std::exception_ptr failure_;
};

}  // namespace flashbench
