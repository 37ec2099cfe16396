#include "compare/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "compare/hypothesis.h"

namespace flashbench {

namespace {

constexpr size_t kBlocks = 4;  // of one process's rounds

using Samples = std::span<const double>;

// Interpolated between the samples at rank 1 + (n - 1) / 4.
double lower_quartile(Samples samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double rank = static_cast<double>(sorted.size() - 1) / 4;
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], rank - static_cast<double>(below));
}

// Consecutive pieces of sizes that differ by 1 at most; no more of them than there are samples.
std::vector<Samples> pieces(Samples samples, size_t count) {
  count = std::min(count, samples.size());
  std::vector<Samples> result;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = samples.size() * i / count, end = samples.size() * (i + 1) / count;
    result.push_back(samples.subspan(begin, end - begin));
  }
  return result;
}

std::vector<Samples> processes(const Measurement& measurement) {
  const Samples all(measurement.seconds);
  if (measurement.samples_per_process.empty()) return {all};
  std::vector<Samples> result;
  size_t begin = 0;
  for (int count : measurement.samples_per_process) {
    result.push_back(all.subspan(begin, static_cast<size_t>(count)));
    begin += static_cast<size_t>(count);
  }
  return result;
}

std::vector<double> log_quartiles(const Measurement& measurement, bool by_process) {
  std::vector<double> result;
  for (Samples process : processes(measurement)) {
    for (Samples unit : pieces(process, by_process ? 1 : kBlocks)) {
      result.push_back(std::log(lower_quartile(unit)));
    }
  }
  return result;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double squared_error_of_mean(const std::vector<double>& values) {
  const double n = static_cast<double>(values.size()), center = mean(values);
  double sum = 0;
  for (double value : values) sum += (value - center) * (value - center);
  return sum / (n - 1) / n;
}

// Of one side.
struct Units {
  std::vector<double> log_seconds;
  double anchor = 0;  // the mean of its logarithms, for each FLOP: a GEMM's size is its GPU's best
};

Units units(const Record& record, bool by_process) {
  return {log_quartiles(*record.measurement, by_process),
          mean(log_quartiles(*anchor(record), by_process)) - std::log(record.gemm_flops)};
}

bool has_samples(const std::optional<Measurement>& measurement) {
  return measurement && !measurement->seconds.empty();
}

double log_min(const Record& record) {
  const auto& seconds = record.measurement->seconds;
  return std::log(*std::min_element(seconds.begin(), seconds.end()));
}

double log_median(const Record& record) {
  return std::log(median(record.measurement->seconds));
}

}  // namespace

const std::optional<Measurement>& anchor(const Record& record) {
  return record.gemm;
}

std::optional<Evidence> gather_evidence(const Record& base, const Record& now,
                                        std::string& why_not) {
  const size_t base_samples = base.measurement->seconds.size();
  const size_t now_samples = now.measurement->seconds.size();
  if (std::min(base_samples, now_samples) < kMinSamples) {
    why_not = fmt::format("too few samples: {} and {}, needs {} of each", base_samples, now_samples,
                          kMinSamples);
    return std::nullopt;
  }
  if (!has_samples(anchor(base)) || !has_samples(anchor(now))) {
    why_not = "no GEMM was timed beside it, so the machine's share is unknown";
    return std::nullopt;
  }

  Evidence evidence;
  evidence.by_process = std::min(base.measurement->samples_per_process.size(),
                                 now.measurement->samples_per_process.size()) > 1;
  const Units before = units(base, evidence.by_process), after = units(now, evidence.by_process);
  evidence.change = mean(after.log_seconds) - mean(before.log_seconds);
  evidence.anchored_change = evidence.change - (after.anchor - before.anchor);
  evidence.min_change = log_min(now) - log_min(base);
  evidence.median_change = log_median(now) - log_median(base);
  evidence.standard_error = std::sqrt(squared_error_of_mean(before.log_seconds) +
                                      squared_error_of_mean(after.log_seconds));
  evidence.degrees_of_freedom =
      static_cast<double>(before.log_seconds.size() + after.log_seconds.size() - 2);
  return evidence;
}

double rank_test(const Record& fast, const Record& slow, double threshold) {
  std::vector<double> raised = fast.measurement->seconds;
  for (double& seconds : raised) seconds *= 1 + threshold;
  return mann_whitney(raised, slow.measurement->seconds);
}

}  // namespace flashbench
