// Whether two results may be compared: what must be the same for a change of time to be the
// program's. The list of keys is in docs/measuring.md.
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

// The conditions of a result, by key; an absent one is empty.
struct Condition {
  std::string key, value;
};
std::vector<Condition> conditions(const SweepResult&);

// The same before anything was run: `cache` is what is planned.
std::vector<Condition> conditions(const nlohmann::ordered_json& meta,
                                  const nlohmann::ordered_json& devices, CacheState cache);

// The keys, in the order in which they are checked and named.
std::vector<std::string> condition_keys();

// Throws BadInput for a key that is none, with the one that may have been meant.
void require_known_keys(const std::vector<std::string>& keys);

struct Difference {
  std::string key, base, now;
};
std::vector<Difference> differences(const std::vector<Condition>& base,
                                    const std::vector<Condition>& now);

// The differences, all of which are in `allowed`. Throws BaselineError, naming every other one with
// both values; `source` is the baseline's.
std::vector<Difference> require_comparable(const std::string& source,
                                           const std::vector<Condition>& base,
                                           const std::vector<Condition>& now,
                                           const std::vector<std::string>& allowed);

}  // namespace flashbench
