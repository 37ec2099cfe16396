// What a case will cost, before anything runs: for --dry-run and the time that is left. Rough, and
// said to be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"
#include "plan/config.h"

namespace flashbench {

struct CaseEstimate {
  double flops = 0;          // matrix-multiply FLOPs over the unmasked pairs
  int64_t tensor_bytes = 0;  // inputs and outputs; what a provider works in comes on top
};
CaseEstimate estimate(const Case&);

// FLOP/s of a large matrix multiplication to assume where nothing has been measured. `threads`: of
// a CPU; 0 stands for all.
double assumed_gemm_flops(DeviceKind, int threads);

// Seconds to verify these providers on a case, as below, without timing.
double estimate_verification(const Case&, const std::vector<std::string>& providers,
                             const VerifyOptions&, DeviceKind, double gemm_flops);

// Seconds to warm up, time and verify these providers on a case, on a device whose large matrix
// multiplication reaches `gemm_flops` FLOP/s. The stop rule is taken to be satisfied after a few
// times min_samples.
double estimate_seconds(const Case&, const std::vector<std::string>& providers,
                        const MeasureOptions&, const VerifyOptions&, DeviceKind, double gemm_flops);

// Seconds to verify all cases, or, if they are timed, of a sweep: with its ceilings, and every case
// as often as it is repeated.
double estimate_sweep(const SweepConfig&, const std::vector<std::string>& providers, bool timed,
                      DeviceKind, double gemm_flops);

}  // namespace flashbench
