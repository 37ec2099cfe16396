// Decides whether two results may be compared: the conditions that must be equal, so that a change
// of time comes from the program. docs/comparing.md lists the keys.
#pragma once

#include <nlohmann/json.hpp>

#include <stdexcept>
#include <string>
#include <vector>

#include "report/record.h"

namespace flashbench {

// A baseline that is missing, damaged, or not comparable (exit 5).
class BaselineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A condition of a result; `value` is empty if it is absent.
struct Condition {
  std::string key, value;
};
std::vector<Condition> conditions(const SweepResult&);

// The same before the run; `cache` is the planned cache state.
std::vector<Condition> conditions(const nlohmann::ordered_json& meta,
                                  const nlohmann::ordered_json& devices, CacheState cache);

// The keys, in the order in which they are checked and printed.
std::vector<std::string> condition_keys();

// Throws BadInput for an unknown key, with the known key that is probably meant.
void require_known_keys(const std::vector<std::string>& keys);

struct Difference {
  std::string key, base, now;
};
std::vector<Difference> differences(const std::vector<Condition>& base,
                                    const std::vector<Condition>& now);

// Returns the differences, all of which are in `allowed`. Throws BaselineError for any others, with
// both values of each; `source` is the name of the baseline.
std::vector<Difference> require_comparable(const std::string& source,
                                           const std::vector<Condition>& base,
                                           const std::vector<Condition>& now,
                                           const std::vector<std::string>& allowed);

}  // namespace flashbench
