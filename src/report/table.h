// The result as a table for the console, 100 columns wide.
#pragma once

#include <string>

#include "report/record.h"

namespace flashbench {

std::string to_table(const SweepResult&);

}  // namespace flashbench
