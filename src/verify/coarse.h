// Finds coarse outputs: they are within their bounds but far from the exact values, which can
// happen if scores are stored in 16 bits. Definition: docs/verifying.md.
#pragma once

#include <string>

#include "attention/problem.h"
#include "verify/oracle.h"

namespace flashbench {

// The largest root mean square of a tensor's error, relative to that of the exact values, that
// needs no further check: 1% in fp32, 5% in fp16, 10% in bf16.
double unremarkable_rel_rms(Dtype);

// Whether a tensor of the verdict exceeds that.
bool is_remarkable(const Verdict&, Dtype);

// For remarkable outputs, judged by the oracle for providers that keep scores in fp32: returns a
// sentence about the tensor with the largest error. Returns nothing if rounding in such a provider
// explains the error too, e.g. where the exact values nearly cancel. `scores` is the dtype in which
// the provider keeps scores.
std::string why_coarse(const Verdict& by_fp32_storage, Dtype, const Storage&);

}  // namespace flashbench
