// The peak rate of a GPU's arithmetic pipes.
#pragma once

#include <optional>

#include "attention/problem.h"

namespace flashbench {

// FLOP per clock and multiprocessor on operands of this dtype, with fp32 accumulation: tensor cores
// (dense) for 8 and 16 bits, fused multiply-adds for fp32. `compute_capability`: 10 * major +
// minor. Empty unless it is the same for every GPU of that capability.
std::optional<double> pipe_flops_per_clock(Dtype, int compute_capability);

}  // namespace flashbench
