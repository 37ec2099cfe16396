// One case: its inputs, its reference, every provider verified, then timed together, then verified
// again on what the timed runs left.
#pragma once

#include <functional>
#include <vector>

#include "device/device.h"
#include "device/device_tensors.h"
#include "measure/ceilings.h"
#include "providers/provider.h"
#include "report/record.h"

namespace flashbench {

struct CaseRunOptions {
  MeasureOptions measure;
  VerifyOptions verify;
  bool time = true;  // false: verify only
  std::function<bool()> interrupted = [] { return false; };

  // Called with the host's inputs once, and with each provider's verified outputs.
  std::function<void(const Problem&, const Inputs&)> on_inputs;
  std::function<void(const Problem&, const Provider&, Outputs)> on_outputs;
};

// One record for each provider, in order, whatever happens to it. `gemm` is timed in the same
// rounds; null where nothing is timed. Throws BadInput and FileError for input files that do not
// fit.
std::vector<Record> run_case(const Case&, const std::vector<const Provider*>&, Device&,
                             GemmCeiling* gemm, const CaseRunOptions&);

}  // namespace flashbench
