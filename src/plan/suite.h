// Sets of cases that the tool itself brings: what every attention implementation must get right.
// Each has a precedent, a kernel in use that got it wrong: docs/verifying.md.
#pragma once

#include <cstdint>
#include <optional>
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

// Which problems the suite "random" has: those of `count` seeds from `seed` on, two of each.
struct RandomSeeds {
  uint64_t seed = 1;
  int64_t count = 500;
};

struct Suite {
  std::string_view name;
  std::string_view description;
  std::vector<SuiteGroup> groups;
  VerifyOptions verify;
  std::optional<RandomSeeds> seeds{};  // of "random"
};

// "adversarial": small cases, a minute for all. "large": tensors past 2^31 elements, for machines
// with the memory. "random": cases drawn from seeds (plan/random_cases.h). Cases of dtype e4m3 are
// for runs in which a provider takes it.
std::vector<std::string> suite_names();

// Throws BadInput for a name that is not one of them, and for seeds of any other than "random",
// which has the default's if none are given.
Suite make_suite(std::string_view name, const std::optional<RandomSeeds>& seeds = std::nullopt);

// The suite's cases, as a config has them.
SweepConfig suite_config(const Suite&);

}  // namespace flashbench
