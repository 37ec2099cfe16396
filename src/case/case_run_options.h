// How to run a case.
#pragma once

#include <filesystem>

#include "measure/options.h"
#include "plan/config.h"

namespace flashbench {

struct CaseRunOptions {
  MeasureOptions measure;
  VerifyOptions verify;
  bool time = true;            // false: verify only
  int repeat = 1;              // runs whose bits are compared, including the verified one
  std::filesystem::path dump;  // folder for the inputs and each provider's outputs; empty: none
};

}  // namespace flashbench
