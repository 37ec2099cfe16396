// The evidence that the samples of a row give about a change of its time, before any verdict.
//
// Load on a machine only ever slows a run down, so that the lower end of the samples varies much
// less between runs than their median. Changes are therefore measured on lower quartiles, and their
// uncertainty between units: a unit is a process or, if there is only one process to compare, a
// quarter of its rounds. basis.h chooses which times are compared under load. docs/comparing.md has
// the reasons and the figures behind the constants.
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
  double estimated_change = 0;    // of the estimated times without load
  double standard_error = 0;      // of `change`
  double anchor_error = 0;        // of the anchor's own change, if load disturbed it; else 0
  double degrees_of_freedom = 0;  // of the standard error
  double unit_variance = 0;       // of one unit; the same for all
  size_t base_units = 0, now_units = 0;
  bool by_process = false;  // units are processes
};

// The anchor: unchanged code that was timed in the same rounds. On the CPU it is the GEMM; where
// clocks are recorded, counted cycles would take its place.
const std::optional<Measurement>& anchor(const Record&);

// Returns nothing, with the reason in `why_not`, if there are too few samples or no anchor. Both
// records must be timed.
std::optional<Evidence> gather_evidence(const Record& base, const Record& now,
                                        std::string& why_not);

// One-sided p-value of the rank test for `slow` having times longer by more than `threshold`.
double rank_test(const Basis::Times& fast, const Basis::Times& slow, double threshold);

}  // namespace flashbench
