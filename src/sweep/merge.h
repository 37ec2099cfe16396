// Repetitions of a case brought together.
#pragma once

#include <vector>

#include "report/record.h"
#include "sweep/journal.h"

namespace flashbench {

// One record for each case and provider, in the order in which they first come. Where an entry
// comes again for the same repetition, the later one counts. Repetitions' samples are put one after
// another (Measurement::samples_per_process says which are whose); the first repetition that did
// not end ok stands for all, without a time, and says so.
std::vector<Record> merged(const std::vector<JournalEntry>& entries);

}  // namespace flashbench
