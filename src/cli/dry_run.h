// Shows what a sweep would do, without doing it.
#pragma once

#include "plan/config.h"

namespace flashbench {

// Prints the cases, their FLOPs, the memory of their tensors and of each provider's workspace, and
// an estimate of the time at `assumed_gflops` of GEMM speed. `timed`: whether cases are timed, and
// not verified alone. Returns exit code 0.
int print_dry_run(const SweepConfig&, bool timed, double assumed_gflops);

// GFLOP/s to assume for a config's device if nothing has been measured.
double default_gflops(const SweepConfig&);

}  // namespace flashbench
