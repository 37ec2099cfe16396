// What the samples of a row say about a change of its time, before any verdict.
//
// Load on a machine only ever slows a run down, so that the lower end of the samples moves much
// less between runs than their median does. Changes are therefore measured on lower quartiles, and
// their uncertainty between units: a unit is a process, or a quarter of the rounds of one process
// where there is no more than one to compare. Which times are compared, where there was load, is in
// basis.h. Why, and the figures behind the constants: docs/measuring.md.
#pragma once

#include <optional>
#include <string>

#include "compare/basis.h"
#include "report/record.h"

namespace flashbench {

// Changes are natural logarithms of new time over old.
struct Evidence {
  Basis basis;                    // the times that were compared
  double change = 0;              // of lower quartiles (processor time: deciles), mean over units
  double anchored_change = 0;     // the same with every time in units of the anchor's
  double min_change = 0;          // of the fastest sample
  double median_change = 0;       // of the median
  double estimated_change = 0;    // of what the samples would have taken without load
  double standard_error = 0;      // of `change`
  double anchor_error = 0;        // of the anchor's own change, where load disturbed it; else 0
  double degrees_of_freedom = 0;  // of the standard error
  double unit_variance = 0;       // of one unit, where all have the same
  size_t base_units = 0, now_units = 0;
  bool by_process = false;  // units are processes
};

// The anchor: unchanged code that was timed in the same rounds. On the CPU it is the GEMM; where
// clocks are recorded, counted cycles would take its place.
const std::optional<Measurement>& anchor(const Record&);

// Empty, with the reason in `why_not`, where there are too few samples or no anchor. Both records
// are timed.
std::optional<Evidence> gather_evidence(const Record& base, const Record& now,
                                        std::string& why_not);

// One-sided p-value of the rank test that `slow` has the larger times by more than `threshold`.
double rank_test(const Basis::Times& fast, const Basis::Times& slow, double threshold);

}  // namespace flashbench
