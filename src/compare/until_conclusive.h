// Repeats measurements until a comparison is decided or the time is up.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compare/compare.h"

namespace flashbench {

// The most looks at a comparison: one whenever the number of repetitions has doubled. Each look
// gets this part of the significance, so that repeated looks do not make wrong verdicts likelier.
inline constexpr int kMostLooks = 5;
CompareOptions for_each_look(CompareOptions);

class UntilConclusive {
 public:
  // `options` are the options for each look; `clock` returns seconds. The time starts with the
  // first call.
  UntilConclusive(const SweepResult& base, CompareOptions options, double seconds,
                  std::function<double()> clock);

  // Returns the keys of the cases to measure once more: those with an inconclusive row. Empty when
  // all are decided, the time is up, or all looks are used.
  std::vector<std::string> operator()(const SweepResult& now);

 private:
  const SweepResult* base_;
  CompareOptions options_;
  double seconds_;
  std::function<double()> clock_;

  double end_ = 0;
  int looks_ = 0;
  int pause_ = 0;  // repetitions until the next look
  std::vector<std::string> undecided_;
};

}  // namespace flashbench
