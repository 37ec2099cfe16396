// The providers and the GEMM ceiling of another program, on its device.
#pragma once

#include <memory>
#include <vector>

#include "measure/ceilings.h"
#include "measure/counters.h"
#include "program/program_device.h"
#include "providers/provider.h"

namespace flashbench {

// The device must outlive them.
std::vector<std::unique_ptr<Provider>> make_program_providers(ProgramDevice&);
std::unique_ptr<GemmCeiling> make_program_gemm(ProgramDevice&, Dtype);

// Why there are no hardware counters.
inline CounterState no_program_counters() {
  return {.reason =
              "the kernels of another program run in its process, where this process's CUPTI "
              "counts nothing"};
}

}  // namespace flashbench
