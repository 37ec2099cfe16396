// Runs one case under hardware counters: every provider is prepared again, run and counted. Nothing
// is judged or timed here; that has been done before, in a process without counters.
#pragma once

#include <vector>

#include "case/case_run.h"
#include "measure/counters.h"
#include "providers/provider.h"

namespace flashbench {

// Returns a report for each provider, in order, whatever happens to it.
std::vector<CounterReport> count_case(const Case&, const std::vector<const Provider*>&, Device&,
                                      CounterReader&, const CaseRunOptions&, const Watch& = {});

}  // namespace flashbench
