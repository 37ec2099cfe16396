#include "compare/basis.h"

#include <algorithm>

#include "measure/stats.h"
#include "measure/undisturbed.h"

namespace flashbench {

std::vector<double> flat(const Basis::Times& times) {
  std::vector<double> all;
  for (const std::vector<double>& process : times)
    all.insert(all.end(), process.begin(), process.end());
  return all;
}

namespace {

constexpr size_t kMinUndisturbed = 4;  // per process
// Of shorter samples, most processor time may be that of threads that wake up and spin.
constexpr double kLeastForProcessorTimes = 1e-3;

// The values for which `keep` is true, by process.
Basis::Times by_process(const Measurement& measurement, const std::vector<double>& values,
                        const std::vector<bool>& keep) {
  std::vector<int> counts = measurement.samples_per_process;
  if (counts.empty()) counts = {static_cast<int>(values.size())};
  Basis::Times times;
  size_t sample = 0;
  for (int count : counts) {
    times.emplace_back();
    for (int i = 0; i < count; ++i, ++sample) {
      if (keep[sample]) times.back().push_back(values[sample]);
    }
  }
  return times;
}

Basis::Times clean_times(const Measurement& measurement) {
  return by_process(measurement, measurement.seconds, undisturbed(measurement));
}

Basis::Times processor_times(const Measurement& measurement) {
  std::vector<double> ran;
  for (const CoreTime& time : measurement.core_times) ran.push_back(time.ran);
  return by_process(measurement, ran, std::vector<bool>(ran.size(), true));
}

bool all_clean(const Measurement& measurement) {
  const std::vector<bool> clean = undisturbed(measurement);
  return std::all_of(clean.begin(), clean.end(), [](bool is) { return is; });
}

bool enough(const Basis::Times& times) {
  return flat(times).size() >= kMinSamples &&
         std::all_of(times.begin(), times.end(), [](const std::vector<double>& process) {
           return process.size() >= kMinUndisturbed;
         });
}

bool has_processor_times(const Measurement& measurement) {
  return !measurement.core_times.empty() &&
         std::all_of(measurement.core_times.begin(), measurement.core_times.end(),
                     [](const CoreTime& time) { return time.ran > 0; });
}

}  // namespace

std::optional<Basis> common_basis(const Measurement& base, const Measurement& now,
                                  std::string& why_not) {
  for (const Measurement* side : {&base, &now}) {
    if (!is_blind(*side)) continue;
    why_not =
        told(*side->load) + ", and this machine does not tell which samples waited for a core";
    return std::nullopt;
  }
  const bool clean = all_clean(base) && all_clean(now);
  Basis basis{clean ? Basis::Kind::samples : Basis::Kind::undisturbed, clean_times(base),
              clean_times(now)};
  if (clean || (enough(basis.base) && enough(basis.now))) return basis;
  if (!has_processor_times(base) || !has_processor_times(now)) {
    why_not =
        "too few samples ran without waiting for a core, and not both sides have processor times";
    return std::nullopt;
  }
  if (std::min(median(base.seconds), median(now.seconds)) < kLeastForProcessorTimes) {
    why_not =
        "too few samples ran without waiting for a core, and they are too short to compare "
        "processor times";
    return std::nullopt;
  }
  return Basis{Basis::Kind::processor, processor_times(base), processor_times(now)};
}

std::vector<double> estimated_seconds(const Measurement& measurement) {
  std::vector<double> seconds = measurement.seconds;
  for (size_t i = 0; i < measurement.core_times.size(); ++i) {
    const auto& [ran, waited] = measurement.core_times[i];
    if (ran > 0) seconds[i] *= ran / (ran + waited);
  }
  return seconds;
}

}  // namespace flashbench
