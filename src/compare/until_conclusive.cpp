#include "compare/until_conclusive.h"

#include <algorithm>
#include <utility>

namespace flashbench {

namespace {

// The largest number of worker processes that any row has samples of.
int repetitions(const SweepResult& result) {
  size_t most = 1;
  for (const Record& record : result.records) {
    if (record.measurement) most = std::max(most, record.measurement->samples_per_process.size());
  }
  return static_cast<int>(most);
}

std::vector<std::string> inconclusive_cases(const Comparison& comparison) {
  std::vector<std::string> keys;
  for (const RowComparison& row : comparison.rows) {
    const std::string key = row.item.key();
    const bool known = std::find(keys.begin(), keys.end(), key) != keys.end();
    if (row.change == Change::inconclusive && !known) keys.push_back(key);
  }
  return keys;
}

}  // namespace

CompareOptions for_each_look(CompareOptions options) {
  options.significance /= kMostLooks;
  return options;
}

UntilConclusive::UntilConclusive(const SweepResult& base, CompareOptions options, double seconds,
                                 std::function<double()> clock)
    : base_(&base), options_(std::move(options)), seconds_(seconds), clock_(std::move(clock)) {}

std::vector<std::string> UntilConclusive::operator()(const SweepResult& now) {
  if (looks_ == 0) end_ = clock_() + seconds_;
  if (clock_() >= end_) return {};
  if (pause_ == 0) {
    if (looks_ == kMostLooks - 1) return {};  // the caller makes the last look
    ++looks_;
    undecided_ = inconclusive_cases(compare(*base_, now, options_));
    pause_ = repetitions(now);
  }
  --pause_;
  return undecided_;
}

}  // namespace flashbench
