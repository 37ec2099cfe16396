// Attention as PyTorch computes it op by op in a 16-bit dtype; the tests of FlashAttention and
// PyTorch take its rounding error as their yardstick. Every GEMM accumulates in fp32; K scaled, S,
// P, O and their gradients are each rounded to the dtype.
#pragma once

#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "host/thread_pool.h"

namespace flashbench::verify {

// In the order [batch, heads, length, head_dim]; the gradients are empty for a forward problem.
struct Eager {
  std::vector<float> o, dq, dk, dv;
};

Eager eager_attention(const Problem&, const Inputs&, ThreadPool&);

}  // namespace flashbench::verify
