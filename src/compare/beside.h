// Merges several results into one, with their rows side by side case by case.
#pragma once

#include <vector>

#include "report/record.h"

namespace flashbench {

// Cases are in the order in which they first appear, and the rows of a case in the order of the
// files. Data about the whole result (meta, config, ceilings) is the first file's; meta/beside has
// the meta of the others, and `devices` has their devices after the first's. Rows that are not from
// the first file name their file (Record::source), because times of two runs make no ratio. Throws
// BaselineError if the results are not comparable (comparable.h), BadInput if two files have the
// same case and provider.
SweepResult beside(std::vector<NamedResult> results);

}  // namespace flashbench
