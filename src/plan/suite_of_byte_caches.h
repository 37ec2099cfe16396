// The cases of the adversarial suite whose K/V cache is of bytes, beside Q and O of 16 bits
// (kv_dtype e4m3).
#pragma once

#include <vector>

#include "plan/suite.h"

namespace flashbench {

std::vector<SuiteGroup> groups_of_byte_caches();

}  // namespace flashbench
