// The textbook computation in the problem's own dtype, whose error FlashAttention's tests take as
// the yardstick: GEMMs accumulate in fp32; S, P, dP and dS are rounded to the dtype, and so are the
// outputs. fp32 rounds nothing more.
#pragma once

#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "device/thread_pool.h"
#include "verify/reference.h"
#include "verify/sampling.h"

namespace flashbench::verify {

// Sets naive_max_abs of the references of O and logsumexp, or of dQ, dK and dV.
void measure_naive_forward(const Problem&, const Inputs&, Reference& o, Reference& logsumexp,
                           ThreadPool&);
void measure_naive_backward(const Problem&, const Inputs&, Reference& dq, Reference& dk,
                            Reference& dv, ThreadPool&);

}  // namespace flashbench::verify
