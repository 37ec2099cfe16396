// The cases of the adversarial suite whose keys and values are in pages.
#pragma once

#include <vector>

#include "plan/suite.h"

namespace flashbench {

std::vector<SuiteGroup> groups_of_pages();

// K and V in pools past 2^31 elements, the first page of each request at their end.
Case large_pool();

}  // namespace flashbench
