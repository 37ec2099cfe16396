// What a case will cost, before anything runs: for --dry-run. Rough, and said to be.
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

// Seconds to warm up, time and verify these providers on a case, on a device whose large matrix
// multiplication reaches `gemm_flops` FLOP/s. The stop rule is taken to be satisfied after a few
// times min_samples.
double estimate_seconds(const Case&, const std::vector<std::string>& providers,
                        const MeasureOptions&, const VerifyOptions&, DeviceKind, double gemm_flops);

}  // namespace flashbench
