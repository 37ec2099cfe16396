// Statistics of timing samples, without assumptions about their distribution.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace flashbench {

struct Interval {
  double low = 0, high = 0;
};

// The middle sample, or the mean of the two middle ones. `samples` must not be empty.
double median(std::span<const double> samples);

// Interval of the median at 95% confidence or more, from order statistics: the narrowest symmetric
// ranks (k, n+1-k) with coverage 1 - 2*P(Binomial(n, 1/2) < k) >= 0.95. Empty for fewer than 6
// samples, which cannot reach 95%. It assumes independent samples, so that it covers only noise
// within this run.
std::optional<Interval> median_interval(std::span<const double> samples);

// Width of the median's interval relative to the median; empty if there is no interval.
std::optional<double> relative_interval_width(std::span<const double> samples);

// Indices of samples whose modified z-score |x - median| / (1.4826 * MAD) exceeds 14.8 / 1.4826,
// that is |x - median| / MAD > 14.8 (hyperfine's threshold). They are reported, never dropped.
std::vector<int> outliers(std::span<const double> samples);

}  // namespace flashbench
