// The cases of the adversarial suite whose requests have lengths of their own.
#pragma once

#include <vector>

#include "plan/suite.h"

namespace flashbench {

std::vector<SuiteGroup> groups_of_lengths();

}  // namespace flashbench
