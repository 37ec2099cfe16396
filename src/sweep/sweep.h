// All cases of a config, in order, by a runner.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/config.h"
#include "report/progress.h"
#include "report/record.h"
#include "sweep/interrupt.h"
#include "sweep/journal.h"
#include "sweep/runner.h"

namespace flashbench {

struct SweepOptions {
  std::vector<std::string> argv;
  CaseRunOptions cases;
  bool ceilings = true;       // measure them first, where anything is timed
  bool retry_failed = false;  // of what the journal has: run again what did not end well

  // Asked with the result so far, when all is done: the cases to run once more, by key; none: that
  // was all. Empty: nothing is asked.
  std::function<std::vector<std::string>(const SweepResult&)> once_more;
  std::function<bool()> interrupted = flashbench::interrupted;  // asked between cases
};

struct SweepOutcome {
  SweepResult result;  // with a record for every case and provider, whatever happened
  std::optional<std::string> stopped;  // why not all of it was run
  bool ended_well = false;             // every record is ok or unsupported
  int exit_code = 0;  // the worst that happened: 130 or 143 (interrupted), 6 (the device was lost),
                      // 3 (verification failed), 4 (another row did not end well), 0
};

// What a journal of this sweep starts with.
JournalHeader journal_header(const SweepConfig&, const Runner&, const SweepOptions&);

// Measures the ceilings (unless only verifying), then runs every case that the journal does not
// have, and appends it there. Without a journal nothing is kept.
SweepOutcome run_sweep(const SweepConfig&, Runner&, Journal*, Progress&, const SweepOptions&);

}  // namespace flashbench
