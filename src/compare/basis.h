// Which times of two measurements can be compared, where load may have disturbed either.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "measure/sampler.h"

namespace flashbench {

// Times of both sides, by process, and what they are:
//   samples      all samples, by the clock: the machine was quiet on both sides
//   undisturbed  by the clock, of samples that had no core to wait for
//   processor    processor time of all samples: too few of them were undisturbed
struct Basis {
  enum class Kind { samples, undisturbed, processor };
  using Times = std::vector<std::vector<double>>;

  Kind kind = Kind::samples;
  Times base, now;
};

// Samples of either side, at least: fewer cannot show anything beyond doubt in a rank test.
inline constexpr int kMinSamples = 8;

// The first kind of which there is enough: undisturbed samples are too few where a side has less
// than kMinSamples, or one of its processes less than 4. Empty, with the reason in `why_not`, where
// there is none.
std::optional<Basis> common_basis(const Measurement& base, const Measurement& now,
                                  std::string& why_not);

// Beside load: what the sample would have taken without, were its waits spread over the threads
// that it kept busy. No more than an estimate.
std::vector<double> estimated_seconds(const Measurement&);

std::string_view name(Basis::Kind);  // "samples", "undisturbed", "processor"

std::vector<double> flat(const Basis::Times&);

}  // namespace flashbench
