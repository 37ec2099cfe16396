// The values of random tensors.
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace flashbench {

// Element `index` of tensor number `tensor` (0 Q, 1 K, 2 V, 3 dO) before rounding to a dtype. The
// index order is [batch, length, heads, head_dim], whatever layout and pages, without padding. A
// pure function of its arguments, so that any program can make the same inputs: SplitMix64 (Steele,
// Lea and Flood 2014) as a counter-based generator, then Box-Muller; docs/problems.md has the
// formula. The distributions of inputs/patterns.h use normal noise.
float random_value(Distribution, uint64_t seed, int tensor, uint64_t index);

}  // namespace flashbench
