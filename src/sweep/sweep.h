// All cases of a config, in order, on one device.
#pragma once

#include <string>
#include <vector>

#include "device/device.h"
#include "plan/config.h"
#include "providers/provider.h"
#include "report/progress.h"
#include "report/record.h"
#include "sweep/case_run.h"

namespace flashbench {

struct SweepOptions {
  std::vector<std::string> argv;
  CaseRunOptions cases;
};

// Measures the ceilings (unless only verifying), then runs every case. The result has a record for
// every case and provider, also when interrupted.
SweepResult run_sweep(const SweepConfig&, const std::vector<const Provider*>&, Device&, Progress&,
                      const SweepOptions&);

// The worst that happened: 0, 3 (verification failed) or 4 (out of memory, error); 130 or 143 if
// interrupted.
int exit_code(const SweepResult&);

}  // namespace flashbench
