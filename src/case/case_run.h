// Runs one case: makes its inputs and its reference, verifies every provider, times them together,
// verifies the outputs of the timed runs, and verifies outputs for negated inputs.
#pragma once

#include <vector>

#include "case/case_run_options.h"
#include "case/watch.h"
#include "device/device.h"
#include "measure/ceilings.h"
#include "providers/provider.h"
#include "report/record.h"

namespace flashbench {

// Returns one record for each provider, in order, whatever happens to it. `gemm` is timed in the
// same rounds; null if nothing is timed. Throws BadInput and FileError for input files that do not
// fit and dumps that cannot be written.
std::vector<Record> run_case(const Case&, const std::vector<const Provider*>&, Device&,
                             GemmCeiling* gemm, const CaseRunOptions&, const Watch& = {});

}  // namespace flashbench
