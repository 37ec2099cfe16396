// Measuring on until a comparison is decided, or the time is up.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compare/compare.h"

namespace flashbench {

// How often a comparison is looked at on the way, at most: whenever the repetitions have doubled.
// So that looking often makes no wrong verdict likelier, each look has this part of the
// significance.
inline constexpr int kMostLooks = 5;
CompareOptions for_each_look(CompareOptions);

class UntilConclusive {
 public:
  // `options` are those for each look; `clock` gives seconds. The time begins with the first
  // question.
  UntilConclusive(const SweepResult& base, CompareOptions options, double seconds,
                  std::function<double()> clock);

  // The cases, by key, that are to be measured once more: those with an inconclusive row. None when
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
