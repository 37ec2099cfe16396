// One case under hardware counters: every provider made ready anew, run and counted. Nothing is
// judged or timed here; that was done before, in a process that has no counters.
#pragma once

#include <vector>

#include "measure/counters.h"
#include "providers/provider.h"
#include "sweep/case_run.h"

namespace flashbench {

// A report for each provider, in order, whatever happens to it.
std::vector<CounterReport> count_case(const Case&, const std::vector<const Provider*>&, Device&,
                                      CounterReader&, const CaseRunOptions&, const Watch& = {});

}  // namespace flashbench
