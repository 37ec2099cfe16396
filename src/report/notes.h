// Sentences about figures that a reader must know, whether they are given or left out.
#pragma once

#include <string>
#include <vector>

#include "report/record.h"

namespace flashbench {

// The notes on a row that ended well.
std::vector<std::string> notes(const Record&, const SweepResult&);

// Warnings about a whole result: how many rows have such notes, and inconsistencies between its
// ceilings.
std::vector<std::string> warnings(const SweepResult&);

}  // namespace flashbench
