// What a reader must know of figures that are given, or left out: sentences.
#pragma once

#include <string>
#include <vector>

#include "report/record.h"

namespace flashbench {

// Of a row that ended well.
std::vector<std::string> notes(const Record&, const SweepResult&);

// Of a whole result: how many rows have such notes, and what its ceilings say of one another.
std::vector<std::string> warnings(const SweepResult&);

}  // namespace flashbench
