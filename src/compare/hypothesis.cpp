#include "compare/hypothesis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace flashbench {

namespace {

constexpr size_t kLargestExact = 20;  // samples per group

// The statistics of one ranking of both groups.
struct Ranking {
  double u = 0;         // pairs (low, high) with high above low; ties count half
  double tie_term = 0;  // sum of t^3 - t over groups of t equal samples
};

Ranking rank(std::span<const double> low, std::span<const double> high) {
  std::vector<std::pair<double, bool>> all;  // the sample, and whether it belongs to `high`
  for (double x : low) all.emplace_back(x, false);
  for (double x : high) all.emplace_back(x, true);
  std::sort(all.begin(), all.end());
  Ranking ranking;
  double low_below = 0;
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin;
    double highs = 0;
    while (end < all.size() && all[end].first == all[begin].first) highs += all[end++].second;
    const double equal = static_cast<double>(end - begin), lows = equal - highs;
    ranking.u += highs * (low_below + lows / 2);
    ranking.tie_term += equal * equal * equal - equal;
    low_below += lows;
    begin = end;
  }
  return ranking;
}

// P(U >= u), from the number of arrangements with each U. The largest of n + m samples is either
// one of the m (above all n) or one of the n.
double exact_upper(size_t n, size_t m, double u) {
  std::vector<std::vector<double>> shares(n + 1);  // [n][U] for the current m, as shares
  for (auto& share : shares) share = {1};
  for (size_t highs = 1; highs <= m; ++highs) {
    for (size_t lows = 0; lows <= n; ++lows) {
      std::vector<double> next(lows * highs + 1, 0);
      const double all = static_cast<double>(lows + highs);
      for (size_t i = 0; i < shares[lows].size(); ++i) {  // still for highs - 1
        next[i + lows] += shares[lows][i] * static_cast<double>(highs) / all;
      }
      if (lows > 0) {
        for (size_t i = 0; i < shares[lows - 1].size(); ++i) {  // already for highs
          next[i] += shares[lows - 1][i] * static_cast<double>(lows) / all;
        }
      }
      shares[lows] = std::move(next);
    }
  }
  const auto first = static_cast<size_t>(std::ceil(u));
  return std::accumulate(shares[n].begin() + static_cast<std::ptrdiff_t>(first), shares[n].end(),
                         0.0);
}

// Continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
  double result = d;
  for (int m = 1; m <= 500; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double change = 1;
    for (double term : {even, odd}) {
      d = 1 + term * d;
      d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
      c = 1 + term / c;
      if (std::fabs(c) < kTiny) c = kTiny;
      change = c * d;
      result *= change;
    }
    if (std::fabs(change - 1) < 1e-15) break;
  }
  return result;
}

// The regularised incomplete beta function I_x(a, b).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double mann_whitney(std::span<const double> low, std::span<const double> high) {
  const Ranking ranking = rank(low, high);
  if (ranking.tie_term == 0 && std::max(low.size(), high.size()) <= kLargestExact) {
    return exact_upper(low.size(), high.size(), ranking.u);
  }
  const double n = static_cast<double>(low.size()), m = static_cast<double>(high.size());
  const double all = n + m;
  const double variance = n * m / 12 * (all + 1 - ranking.tie_term / (all * (all - 1)));
  if (variance <= 0) return 1;  // all samples are equal
  const double z = (ranking.u - n * m / 2 - 0.5) / std::sqrt(variance);
  return std::erfc(z / std::sqrt(2.0)) / 2;
}

double student_t_upper(double t, double degrees) {
  const double tail = incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2;
  return t >= 0 ? tail : 1 - tail;
}

double student_t_quantile(double p, double degrees) {
  double low = 0, high = 1;
  while (student_t_upper(high, degrees) > p) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (student_t_upper(middle, degrees) > p ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size());
  double so_far = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    so_far = std::max(so_far, std::min(1.0, static_cast<double>(p.size() - i) * p[order[i]]));
    adjusted[order[i]] = so_far;
  }
  return adjusted;
}

}  // namespace flashbench
