// What a recipe costs (Problem::quantize), apart from what the kernel behind it does.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace flashbench {

// A root mean square over the checked elements of O, and its interval at 95% confidence: of the
// mean squares of the heads, by Student's t. Empty for fewer than four heads.
struct Rmse {
  double value = 0;
  std::optional<double> low{}, high{};
};

struct RecipeCost {
  Rmse total;          // found - exact, of the inputs before they were rounded
  Rmse quant;          // exact of the rounded inputs - exact of those before: no kernel is involved
  Rmse kernel;         // found - exact, of the rounded inputs
  double rms_o = 0;    // of the exact O of the inputs before they were rounded
  double storing = 0;  // root mean square of the error of storing that O in its dtype
  size_t heads = 0;    // with checked elements

  // The kernel's errors do not depend on those of rounding, so that the squares of `quant` and
  // `kernel` add up to that of `total`: their sum over it. Empty where storing O dominates.
  std::optional<double> added() const;

  // A sentence, if they do not add up, and chance does not explain it.
  std::string why_not_added() const;

  double elements = 0;  // that were checked
  // By how many standard errors total² differs from quant² + kernel², with rows as the sample.
  double standard_errors = 0;
};

// Sums over the elements of one head.
struct SquaresOfHead {
  double elements = 0, total = 0, quant = 0, kernel = 0, exact = 0, storing = 0;
  double squared_excess = 0;  // over its rows, of (total - quant - kernel)² of a row
};

// Adds the sums over the elements of one row.
void add_row(SquaresOfHead& of_head, const SquaresOfHead& of_row);

RecipeCost recipe_cost(const std::vector<SquaresOfHead>& heads);

}  // namespace flashbench
