// Merges the repetitions of a case.
#pragma once

#include <vector>

#include "report/record.h"
#include "sweep/journal.h"

namespace flashbench {

// Returns one record for each case and provider, in order of first occurrence. If there are several
// entries for the same repetition, the last one counts. Samples of the repetitions are concatenated
// (Measurement::samples_per_process tells which are whose). The first repetition that did not end
// ok represents all of them, without a time, and its reason says so.
std::vector<Record> merged(const std::vector<JournalEntry>& entries);

}  // namespace flashbench
