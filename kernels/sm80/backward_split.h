// How many thread blocks of the backward pass's main kernel share a block of keys.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace flashbench::kernels::sm80 {

// A block of keys concerns all query heads of its group and the blocks of queries that see it.
// These are cut into as many even parts, each of which has a thread block of its own. The cuts are
// the same for all keys.
int choose_parts(const Launch&);

// How many parts of K/V heads have their thread blocks mixed, which go backwards or not (see
// backward_work.cuh).
int64_t section_heads(const Launch&, int64_t parts, bool backwards);

}  // namespace flashbench::kernels::sm80
