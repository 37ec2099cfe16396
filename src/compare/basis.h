// Chooses which times of two measurements to compare if load may have disturbed either.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/enum_names.h"
#include "measure/sampler.h"

namespace flashbench {

// The times of both sides, by process, and their kind:
//   samples      clock times of all samples, if the machine was quiet on both sides
//   undisturbed  clock times of the samples that had no core to wait for
//   processor    processor times of all samples, if too few were undisturbed
struct Basis {
  enum class Kind { samples, undisturbed, processor };
  using Times = std::vector<std::vector<double>>;

  Kind kind = Kind::samples;
  Times base, now;
};
template <>
inline constexpr auto kNames<Basis::Kind> =
    names_of<Basis::Kind>({{Basis::Kind::samples, "samples"},
                           {Basis::Kind::undisturbed, "undisturbed"},
                           {Basis::Kind::processor, "processor"}});

// The fewest samples of a side: with fewer, a rank test cannot show anything beyond doubt.
inline constexpr int kMinSamples = 8;

// Returns the first kind with enough samples. Undisturbed samples are too few if a side has less
// than kMinSamples, or one of its processes less than 4. Returns nothing, with the reason in
// `why_not`, if no kind has enough.
std::optional<Basis> common_basis(const Measurement& base, const Measurement& now,
                                  std::string& why_not);

// Estimates for samples taken under load: how long each would have taken without, if its waits were
// spread evenly over the threads that it kept busy.
std::vector<double> estimated_seconds(const Measurement&);

std::vector<double> flat(const Basis::Times&);

}  // namespace flashbench
