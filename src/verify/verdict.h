// The judgement of one output tensor against its reference.
#pragma once

#include <string>

#include "attention/tensors.h"
#include "host/thread_pool.h"
#include "verify/oracle.h"
#include "verify/reference.h"

namespace flashbench::verify {

// Largest lambda that passes. Correct kernels stay below half of it, in every dtype; planted
// defects are above it (docs/verifying.md).
inline constexpr double kFailLambda = 6;

struct Judgement {
  TensorError error;
  std::string reason;  // a sentence, if it did not pass
};

// `output` is shaped [batch, heads, length, columns], in the dtype in which it was stored; on the
// host.
Judgement judge_tensor(const Reference& reference, const ConstTensorView& output, ThreadPool& pool);

}  // namespace flashbench::verify
