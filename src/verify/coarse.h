// Outputs that are right by their bounds and far from the exact ones all the same: what storing
// scores in 16 bits may cost. The definition: docs/measuring.md.
#pragma once

#include <string>

#include "attention/problem.h"
#include "verify/oracle.h"

namespace flashbench {

// Largest root mean square of a tensor's error, in units of the exact values', that needs no look:
// 1% in fp32, 5% in fp16, 10% in bf16.
double unremarkable_rel_rms(Dtype);

// Whether a tensor of the verdict is beyond that.
bool is_remarkable(const Verdict&, Dtype);

// Of remarkable outputs, judged by the oracle for providers that keep scores in fp32: a sentence
// about the tensor that is furthest off, or nothing where rounding in such a provider explains it
// too, as where the exact values nearly cancel. `scores`: as the provider keeps them.
std::string why_coarse(const Verdict& by_fp32_scores, Dtype, Dtype scores);

}  // namespace flashbench
