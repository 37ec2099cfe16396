// Runs all cases of a config, in order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attention/exit_codes.h"
#include "plan/config.h"
#include "report/progress.h"
#include "report/record.h"
#include "sweep/journal.h"
#include "worker/interrupt.h"
#include "worker/runner.h"

namespace flashbench {

struct SweepOptions {
  std::vector<std::string> argv;
  CaseRunOptions cases;
  bool ceilings = true;       // measure them first, if anything is timed
  bool retry_failed = false;  // run the journal's cases that did not end well again

  // If set, called with the result when all cases are done. Returns the keys of the cases to run
  // once more; none: the sweep ends.
  std::function<std::vector<std::string>(const SweepResult&)> once_more;
  std::function<bool()> interrupted = flashbench::interrupted;  // polled between cases
};

struct SweepOutcome {
  SweepResult result;  // has a record for every case and provider, whatever happened
  std::optional<std::string> stopped;  // why not everything was run
  bool ended_well = false;             // every record is ok or unsupported
  int exit_code = exit_codes::kOk;     // by the worst outcome: interrupted, the device was lost,
                                       // verification failed, another row did not end well, ok
};

// Whether each is ok or unsupported.
bool ended_well(const std::vector<Record>&);

// The header of this sweep's journal.
JournalHeader journal_header(const SweepConfig&, const Runner&, const SweepOptions&);

// Measures the ceilings (unless only verifying), then runs every case that is not in the journal,
// and appends it there. Without a journal nothing is saved. Throws FileError if input files changed
// meanwhile.
SweepOutcome run_sweep(const SweepConfig&, Runner&, Journal*, Progress&, const SweepOptions&);

}  // namespace flashbench
