// The textbook computation in the problem's own dtype, whose error is the yardstick of
// FlashAttention's tests. GEMMs accumulate in fp32; S, P, dP, dS and the outputs are rounded to the
// dtype. In fp32 there is no further rounding; of bytes it is that of bf16.
#pragma once

#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "host/thread_pool.h"
#include "verify/reference.h"
#include "verify/sampling.h"

namespace flashbench::verify {

// Sets naive_max_abs of the references of O and logsumexp, or of dQ, dK and dV.
void measure_naive_forward(const Problem&, const Inputs&, Reference& o, Reference& logsumexp,
                           ThreadPool&);
void measure_naive_backward(const Problem&, const Inputs&, Reference& dq, Reference& dk,
                            Reference& dv, ThreadPool&);

}  // namespace flashbench::verify
