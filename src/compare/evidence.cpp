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

constexpr size_t kBlocks = 4;  // into which the rounds of a single process are divided

using Samples = std::span<const double>;

// The quantile to compare. For processor times it is lower: a library's threads may spin on after
// their work, into up to three of four samples of the next provider, and that is processor time
// too.
double quantile_of(Basis::Kind kind) {
  return kind == Basis::Kind::processor ? 0.1 : 0.25;
}

// Interpolated between the samples at rank 1 + (n - 1) * fraction.
double lower_quantile(Samples samples, double fraction) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double rank = static_cast<double>(sorted.size() - 1) * fraction;
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], rank - static_cast<double>(below));
}

// Consecutive pieces whose sizes differ by at most 1; at most one per sample.
std::vector<Samples> pieces(Samples samples, size_t count) {
  count = std::min(count, samples.size());
  std::vector<Samples> result;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = samples.size() * i / count, end = samples.size() * (i + 1) / count;
    result.push_back(samples.subspan(begin, end - begin));
  }
  return result;
}

std::vector<double> log_quantiles(const Basis::Times& times, double fraction, bool by_process) {
  std::vector<double> result;
  for (const std::vector<double>& process : times) {
    for (Samples unit : pieces(process, by_process ? 1 : kBlocks)) {
      result.push_back(std::log(lower_quantile(unit, fraction)));
    }
  }
  return result;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double sum_of_squares(const std::vector<double>& values) {
  const double center = mean(values);
  double sum = 0;
  for (double value : values) sum += (value - center) * (value - center);
  return sum;
}

double squared_error_of_mean(const std::vector<double>& values) {
  const double n = static_cast<double>(values.size());
  return sum_of_squares(values) / (n - 1) / n;
}

// Both sides' logarithms of each unit's lower quantile.
struct Units {
  std::vector<double> base, now;

  Units(const Basis& basis, bool by_process)
      : base(log_quantiles(basis.base, quantile_of(basis.kind), by_process)),
        now(log_quantiles(basis.now, quantile_of(basis.kind), by_process)) {}

  double change() const { return mean(now) - mean(base); }
  double error() const {
    return std::sqrt(squared_error_of_mean(base) + squared_error_of_mean(now));
  }
  bool has_spread() const { return std::min(base.size(), now.size()) > 1; }
  double degrees() const { return static_cast<double>(base.size() + now.size() - 2); }
  double variance() const { return (sum_of_squares(base) + sum_of_squares(now)) / degrees(); }
};

bool has_samples(const std::optional<Measurement>& measurement) {
  return measurement && !measurement->seconds.empty();
}

double log_min(const Basis::Times& times) {
  const std::vector<double> all = flat(times);
  return std::log(*std::min_element(all.begin(), all.end()));
}

double log_median(const Basis::Times& times) {
  return std::log(median(flat(times)));
}

double estimated_change(const Measurement& base, const Measurement& now) {
  constexpr double kQuartile = 0.25;
  return std::log(lower_quantile(estimated_seconds(now), kQuartile)) -
         std::log(lower_quantile(estimated_seconds(base), kQuartile));
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
    why_not = fmt::format("too few samples: {} and {}, at least {} of each are needed",
                          base_samples, now_samples, kMinSamples);
    return std::nullopt;
  }
  if (!has_samples(anchor(base)) || !has_samples(anchor(now))) {
    why_not = "no GEMM was timed beside it, so the machine's part in the change is unknown";
    return std::nullopt;
  }
  auto basis = common_basis(*base.measurement, *now.measurement, why_not);
  if (!basis) return std::nullopt;
  const auto anchor_basis = common_basis(*anchor(base), *anchor(now), why_not);
  if (!anchor_basis) return std::nullopt;

  Evidence evidence;
  evidence.by_process = std::min(basis->base.size(), basis->now.size()) > 1;
  const Units units(*basis, evidence.by_process), anchor_units(*anchor_basis, evidence.by_process);
  evidence.change = units.change();
  // Per FLOP, because the size of a GEMM is the best one for its GPU.
  const double anchor_change =
      anchor_units.change() - std::log(now.gemm_flops) + std::log(base.gemm_flops);
  evidence.anchored_change = units.change() - anchor_change;
  evidence.min_change = log_min(basis->now) - log_min(basis->base);
  evidence.median_change = log_median(basis->now) - log_median(basis->base);
  evidence.estimated_change = estimated_change(*base.measurement, *now.measurement);
  evidence.standard_error = units.error();
  if (anchor_basis->kind != Basis::Kind::samples) {
    evidence.anchor_error =
        anchor_units.has_spread() ? anchor_units.error() : evidence.standard_error;
  }
  evidence.degrees_of_freedom = units.degrees();
  evidence.unit_variance = units.variance();
  evidence.base_units = units.base.size();
  evidence.now_units = units.now.size();
  evidence.basis = std::move(*basis);
  return evidence;
}

double rank_test(const Basis::Times& fast, const Basis::Times& slow, double threshold) {
  std::vector<double> raised = flat(fast);
  for (double& seconds : raised) seconds *= 1 + threshold;
  return mann_whitney(raised, flat(slow));
}

}  // namespace flashbench
