// Several results as one, their rows beside each other case by case.
#pragma once

#include <string>
#include <vector>

#include "report/record.h"

namespace flashbench {

struct NamedResult {
  std::string source;  // the file
  SweepResult result;
};

// Cases in the order in which they first appear, rows in that of the files. What is said of the
// whole (meta, config, ceilings) is the first file's; meta/beside has the others' meta, `devices`
// theirs after the first's. Rows that are not of the first file name theirs (Record::source), since
// times of two runs are no ratio. Throws BaselineError if the results are not comparable
// (comparable.h); BadInput if two files have the same case and provider.
SweepResult beside(std::vector<NamedResult> results);

}  // namespace flashbench
