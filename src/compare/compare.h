// Compares two results of the same cases, row by row: what became faster, slower or wrong.
// docs/comparing.md has the rule and its measured error rates.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attention/enum_names.h"
#include "compare/basis.h"
#include "compare/comparable.h"
#include "report/record.h"

namespace flashbench {

// The verdict on a row (a case and a provider).
//   slower        takes longer by more than the threshold, beyond doubt
//   newly_wrong   was verified in the base and now failed, crashed, timed out or ran out of memory
//   faster        takes less by more than the threshold, beyond doubt
//   same          is within options.same_within of the base, beyond doubt
//   inconclusive  none of these can be said
//   fixed         is verified now and was not in the base
//   added         is not in the base, or was unsupported or skipped there
//   missing       is not in the new result, or is unsupported or skipped there
//   untimed       has no times to compare in both, and nothing of the above
enum class Change {
  slower,
  newly_wrong,
  faster,
  same,
  inconclusive,
  fixed,
  added,
  missing,
  untimed
};
template <>
inline constexpr auto kNames<Change> = names_of<Change>({{Change::slower, "SLOWER"},
                                                         {Change::newly_wrong, "NEWLY_WRONG"},
                                                         {Change::faster, "FASTER"},
                                                         {Change::same, "SAME"},
                                                         {Change::inconclusive, "INCONCLUSIVE"},
                                                         {Change::fixed, "FIXED"},
                                                         {Change::added, "NEW"},
                                                         {Change::missing, "MISSING"},
                                                         {Change::untimed, "UNTIMED"}});
inline constexpr auto kChanges = values_of<Change>();

struct CompareOptions {
  double noise_threshold = 0.01;  // changes up to this are not worth a verdict
  double same_within = 0.05;      // the range of SAME; the threshold, if that is larger
  double significance = 0.05;     // probability of any wrong FASTER or SLOWER among all rows
  std::vector<std::string> allow_different;  // condition keys
};

struct RowComparison {
  Case item;
  std::string provider;
  Change change = Change::untimed;
  std::string reason;             // a few words; empty for faster, slower and same
  std::string needs;              // what would decide an inconclusive row, if known
  std::vector<std::string> load;  // the load, if any, and what was compared because of it

  std::optional<double> base_median, now_median;  // seconds

  // New time over old, if there were enough samples: of lower quartiles, with its 95% interval; of
  // medians; and of lower quartiles in units of the anchor.
  std::optional<double> ratio, anchored_ratio;
  std::optional<Interval> interval;
  std::optional<double> p;  // p-value after Holm's correction

  // The kind of times that were compared, if any, and each side's number of undisturbed samples,
  // which had no core to wait for.
  std::optional<Basis::Kind> basis;
  size_t base_undisturbed = 0, now_undisturbed = 0;
};

struct Comparison {
  CompareOptions options;
  std::string base_name, now_name;  // names of the two results
  nlohmann::ordered_json base_meta, now_meta;
  std::vector<Difference> differences;  // allowed differences
  std::vector<RowComparison> rows;      // in the order of the new result, then the missing ones

  int count(Change) const;
  bool regressed() const { return count(Change::slower) + count(Change::newly_wrong) > 0; }

  // The mean by provider, over the rows that have a ratio.
  struct MeanRatio {
    double ratio = 1;
    int rows = 0;
  };
  std::map<std::string, MeanRatio> mean_ratios() const;
};

// Throws BaselineError if the two are not comparable or have no row in common, BadInput for an
// unknown key in options.allow_different. Messages use the two names.
Comparison compare(const SweepResult& base, const SweepResult& now, const CompareOptions& options,
                   const std::string& base_name = "base", const std::string& now_name = "new");

}  // namespace flashbench
