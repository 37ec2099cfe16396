#include "measure/stats.h"

#include <algorithm>
#include <cmath>

namespace flashbench {

namespace {

constexpr double kConfidence = 0.95;
constexpr double kOutlierDeviations = 14.8;

std::vector<double> sorted(std::span<const double> samples) {
  std::vector<double> values(samples.begin(), samples.end());
  std::sort(values.begin(), values.end());
  return values;
}

double sorted_median(const std::vector<double>& values) {
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

// The largest rank k >= 1 for which [x_(k), x_(n+1-k)] covers the median with kConfidence; 0 if
// there is none. Binomial terms are computed from logarithms, which do not underflow for any n.
size_t interval_rank(size_t n) {
  const auto count = static_cast<double>(n);
  double below = 0;  // P(Binomial(n, 1/2) < k)
  size_t rank = 0;
  for (size_t k = 1; 2 * k <= n; ++k) {
    const auto successes = static_cast<double>(k - 1);
    below += std::exp(std::lgamma(count + 1) - std::lgamma(successes + 1) -
                      std::lgamma(count - successes + 1) - count * std::log(2.0));
    if (1 - 2 * below < kConfidence) break;
    rank = k;
  }
  return rank;
}

}  // namespace

double median(std::span<const double> samples) {
  return sorted_median(sorted(samples));
}

std::optional<Interval> median_interval(std::span<const double> samples) {
  const size_t rank = interval_rank(samples.size());
  if (rank == 0) return std::nullopt;
  const std::vector<double> values = sorted(samples);
  return Interval{values[rank - 1], values[values.size() - rank]};
}

std::optional<double> relative_interval_width(std::span<const double> samples) {
  const auto interval = median_interval(samples);
  if (!interval) return std::nullopt;
  return (interval->high - interval->low) / median(samples);
}

std::vector<int> outliers(std::span<const double> samples) {
  std::vector<int> found;
  if (samples.empty()) return found;
  const double center = median(samples);
  std::vector<double> deviations;
  for (double sample : samples) deviations.push_back(std::abs(sample - center));
  const double limit = kOutlierDeviations * median(deviations);
  for (size_t i = 0; i < samples.size(); ++i) {
    if (deviations[i] > limit && limit > 0) found.push_back(static_cast<int>(i));
  }
  return found;
}

}  // namespace flashbench
