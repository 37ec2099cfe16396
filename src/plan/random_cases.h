// Problems drawn at random, over all axes of a config: what nobody thought of.
#pragma once

#include <cstdint>

#include "plan/config.h"

namespace flashbench {

// The case of this seed, the same everywhere; q_len and kv_len are at most `longest` (64 or more).
// Its inputs are made from the seed too, so that its key tells it.
Case random_case(uint64_t seed, int64_t longest);

// Another case of this seed, forward and of dtype e4m3.
Case random_case_of_bytes(uint64_t seed, int64_t longest);

}  // namespace flashbench
