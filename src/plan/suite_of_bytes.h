// The cases of the adversarial suite whose Q, K and V are bytes (dtype e4m3).
#pragma once

#include <vector>

#include "plan/suite.h"

namespace flashbench {

std::vector<SuiteGroup> groups_of_bytes();

}  // namespace flashbench
