// Sets of cases that the tool itself brings: what every attention implementation must get right.
// Each has a precedent, a kernel in use that got it wrong: docs/measuring.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/config.h"

namespace flashbench {

// Cases that ask one thing.
struct SuiteGroup {
  std::string_view name;
  std::string_view purpose;  // one line: what the outputs must be
  std::vector<Case> cases;
};

struct Suite {
  std::string_view name;
  std::string_view description;
  std::vector<SuiteGroup> groups;
  VerifyOptions verify;
};

// "adversarial": small cases, a minute for all. "large": tensors past 2^31 elements, for machines
// with the memory.
std::vector<std::string> suite_names();

// Throws BadInput for a name that is not one of them.
Suite make_suite(std::string_view name);

// The suite's cases, as a config has them.
SweepConfig suite_config(const Suite&);

}  // namespace flashbench
