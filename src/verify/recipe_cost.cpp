#include "verify/recipe_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace flashbench {

namespace {

constexpr double kMostApart = 0.05;      // of the squares
constexpr double kLeastOverStoring = 8;  // of the recipe's error over that of storing O
// Seen with right providers, two heads of 40 rows with outliers: up to 3.5 in 231.
constexpr double kMostStandardErrors = 5;
constexpr size_t kLeastHeads = 4;

// The 97.5% point of Student's t (Abramowitz and Stegun 26.7.5), to 1% from 3 degrees of freedom
// on.
double student(double freedom) {
  constexpr double z = 1.959964;
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
}

Rmse rmse_of(const std::vector<SquaresOfHead>& heads, double SquaresOfHead::*squares) {
  double sum = 0, elements = 0;
  for (const auto& head : heads) {
    sum += head.*squares;
    elements += head.elements;
  }
  if (elements == 0) return {};
  const double mean = sum / elements;
  Rmse rmse{std::sqrt(mean)};
  if (heads.size() < kLeastHeads) return rmse;
  double deviations = 0;
  for (const auto& head : heads) {
    const double deviation = head.*squares / head.elements - mean;
    deviations += deviation * deviation;
  }
  const auto count = static_cast<double>(heads.size());
  const double half_width = student(count - 1) * std::sqrt(deviations / (count - 1) / count);
  rmse.low = std::sqrt(std::max(0.0, mean - half_width));
  rmse.high = std::sqrt(mean + half_width);
  return rmse;
}

}  // namespace

std::optional<double> RecipeCost::added() const {
  if (quant.value < kLeastOverStoring * storing) return std::nullopt;
  if (!(total.value > 0)) return std::nullopt;
  return (quant.value * quant.value + kernel.value * kernel.value) / (total.value * total.value);
}

std::string RecipeCost::why_not_added() const {
  const auto sum = added();
  if (!sum || std::abs(*sum - 1) <= kMostApart || standard_errors <= kMostStandardErrors) return "";
  return fmt::format(
      "its error depends on that of the recipe: the squares of {:.3g} (rounding the inputs) and "
      "{:.3g} (the kernel) add up to {:.3g} of that of {:.3g} (both), and should to 1 within {:g}% "
      "or {:g} standard errors",
      quant.value, kernel.value, *sum, total.value, 100 * kMostApart, kMostStandardErrors);
}

void add_row(SquaresOfHead& of_head, const SquaresOfHead& of_row) {
  for (double SquaresOfHead::*const sum :
       {&SquaresOfHead::elements, &SquaresOfHead::total, &SquaresOfHead::quant,
        &SquaresOfHead::kernel, &SquaresOfHead::exact, &SquaresOfHead::storing}) {
    of_head.*sum += of_row.*sum;
  }
  const double excess = of_row.total - of_row.quant - of_row.kernel;
  of_head.squared_excess += excess * excess;
}

RecipeCost recipe_cost(const std::vector<SquaresOfHead>& heads) {
  RecipeCost cost;
  cost.total = rmse_of(heads, &SquaresOfHead::total);
  cost.quant = rmse_of(heads, &SquaresOfHead::quant);
  cost.kernel = rmse_of(heads, &SquaresOfHead::kernel);
  cost.rms_o = rmse_of(heads, &SquaresOfHead::exact).value;
  cost.storing = rmse_of(heads, &SquaresOfHead::storing).value;
  cost.heads = heads.size();
  double excess = 0, squared_excess = 0;
  for (const SquaresOfHead& head : heads) {
    cost.elements += head.elements;
    excess += head.total - head.quant - head.kernel;
    squared_excess += head.squared_excess;
  }
  if (squared_excess > 0) cost.standard_errors = std::abs(excess) / std::sqrt(squared_excess);
  return cost;
}

}  // namespace flashbench
