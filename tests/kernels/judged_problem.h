// A problem on a GPU with its fp64 reference, which judges the outputs. Where it is one of the
// backward pass, the reference gives O and the logsumexp, too.
#pragma once

#include <gtest/gtest.h>

#include "tests/kernels/cuda_problem.h"
#include "verify/oracle.h"
#include "verify/storage.h"

namespace flashbench::kernels {

struct JudgedProblem {
  JudgedProblem(Device& device, const AttentionKernel& kernel, const Problem& p)
      : cuda(device, kernel, p),
        oracle(p, cuda.host_inputs(), Storage(Dtype::fp32, Dtype::fp32, kernel.accumulator), {},
               device) {
    if (p.pass == Pass::backward) cuda.set_forward(oracle);
  }

  void expect_right() {
    EXPECT_EQ(cuda.outputs().damage(), "");
    HostOutputs host = cuda.outputs().to_host();
    const Verdict verdict = oracle.judge(host.view());
    EXPECT_TRUE(verdict.passed()) << verdict.reason;
  }

  CudaProblem cuda;
  Oracle oracle;
};

}  // namespace flashbench::kernels
