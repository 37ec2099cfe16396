// One case: its inputs, its reference, every provider verified, then timed together, then verified
// again on what the timed runs left, and on inputs with another sign.
#pragma once

#include <atomic>
#include <filesystem>
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
  bool time = true;            // false: verify only
  int repeat = 1;              // runs whose bits are compared, the verified one included
  std::filesystem::path dump;  // folder for the inputs and each provider's outputs; empty: none
};

// What passes between a case and who watches it from outside.
struct Watch {
  std::function<bool()> interrupted = [] { return false; };  // polled: end soon
  std::atomic<int>* at_work = nullptr;       // told which provider, by its place in the list, is at
                                             // work; -1 if none is
  std::atomic<int>* left_running = nullptr;  // told which one left threads or processes at work;
                                             // what runs beside those is not timed: the case ends
};

// One record for each provider, in order, whatever happens to it. `gemm` is timed in the same
// rounds; null where nothing is timed. Throws BadInput and FileError for input files that do not
// fit and dumps that cannot be written.
std::vector<Record> run_case(const Case&, const std::vector<const Provider*>&, Device&,
                             GemmCeiling* gemm, const CaseRunOptions&, const Watch& = {});

}  // namespace flashbench
