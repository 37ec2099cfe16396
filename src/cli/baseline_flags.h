// Options for comparing results, and for the baseline of a sweep.
#pragma once

#include <CLI/CLI.hpp>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "compare/compare.h"
#include "sweep/sweep.h"

namespace flashbench {

// --noise-threshold, --fail-on-regression, --allow-different.
struct ComparisonFlags {
  std::string noise_threshold = "1%";
  bool fail_on_regression = false;
  std::vector<std::string> allow_different;

  void add(CLI::App&);
  CompareOptions options() const;  // throws BadInput
  int exit_code(const Comparison&) const;
};

// Parses a fraction in [0, 1), as a number or in percent: "0.01", "1%". Throws BadInput.
double parse_fraction(const std::string& text);

// A baseline with which a sweep will be compared.
struct LoadedBaseline {
  std::string source;
  SweepResult result;
  CompareOptions options;
};

// --baseline, --until-conclusive and --save-baseline, with the flags of the comparison. `folder` is
// the folder of the sweep.
struct BaselineFlags {
  std::optional<std::string> baseline, save;
  std::optional<double> until_conclusive;  // seconds
  ComparisonFlags how;

  void add(CLI::App&);

  // Before the sweep: reads the baseline without the cases that `filter` or the shard leaves out,
  // and checks everything that is already known: that its conditions match those of the sweep on
  // `device` (as in a result file), and that both have a case in common. Throws BaselineError,
  // BadInput. Empty without --baseline.
  std::optional<LoadedBaseline> load(const std::filesystem::path& folder, const SweepConfig&,
                                     const FilterFlags& filter,
                                     const nlohmann::ordered_json& device) const;

  // Before the sweep: throws FileError if the baseline to be saved could not be written.
  void require_writable(const std::filesystem::path& folder, const SweepConfig&) const;

  // Returns SweepOptions::once_more; empty without --until-conclusive. Refers to `loaded`.
  std::function<std::vector<std::string>(const SweepResult&)> once_more(
      const std::optional<LoadedBaseline>& loaded) const;

  // After a completed sweep: prints the comparison and saves the result. A result that fails the
  // gate or did not end well does not become a baseline. Returns 0, or 1 if the gate fails.
  int finish(const std::optional<LoadedBaseline>&, const std::filesystem::path& folder,
             const SweepConfig&, const SweepOutcome&) const;
};

}  // namespace flashbench
