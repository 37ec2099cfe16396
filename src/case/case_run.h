// Runs one case: makes its inputs and its reference, verifies every provider, times them together,
// verifies the outputs of the timed runs, and verifies outputs for negated inputs.
#pragma once

#include <filesystem>
#include <vector>

#include "case/watch.h"
#include "device/device.h"
#include "device/device_tensors.h"
#include "measure/ceilings.h"
#include "providers/provider.h"
#include "report/record.h"

namespace flashbench {

struct CaseRunOptions {
  MeasureOptions measure;
  VerifyOptions verify;
  bool time = true;            // false: verify only
  int repeat = 1;              // runs whose bits are compared, including the verified one
  std::filesystem::path dump;  // folder for the inputs and each provider's outputs; empty: none
};

// Returns one record for each provider, in order, whatever happens to it. `gemm` is timed in the
// same rounds; null if nothing is timed. Throws BadInput and FileError for input files that do not
// fit and dumps that cannot be written.
std::vector<Record> run_case(const Case&, const std::vector<const Provider*>&, Device&,
                             GemmCeiling* gemm, const CaseRunOptions&, const Watch& = {});

}  // namespace flashbench
