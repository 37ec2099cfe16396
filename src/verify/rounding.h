// How much error rounding alone explains: the constants of the lambda criterion. docs/verifying.md
// has the formulas and their calibration.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/accumulator.h"
#include "attention/problem.h"
#include "attention/recipe.h"

namespace flashbench::verify {

inline constexpr double kFp32Roundoff = 0x1p-24;

struct Rounding {
  double roundoff;            // unit roundoff of a stored output
  double flush;               // absolute error of storing a subnormal output
  double intermediate;        // relative error of an element of P or dS
  double intermediate_floor;  // absolute error of a subnormal element of P or dS
};

// The intermediate error of fp32 is that of exp(), a few ulps. fp16 rounds subnormals to multiples
// of 2^-24; fp32, bf16 and exp() may flush them to zero.
inline Rounding rounding_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return {kFp32Roundoff, 0x1p-126, 0x1p-22, 0x1p-126};
    case Dtype::fp16:
      return {0x1p-11, 0x1p-25, 0x1p-11, 0x1p-25};
    case Dtype::bf16:
      return {0x1p-8, 0x1p-126, 0x1p-8, 0x1p-126};
    case Dtype::e4m3:
      return {0x1p-4, 0x1p-10, 0x1p-4, 0x1p-10};
  }
  return {};
}

// Of P: what is multiplied with V.
inline Rounding rounding_of_p(const Problem& p) {
  return rounding_of(p.is_quantized() ? Dtype::e4m3 : p.dtype);
}

// Absolute error of a subnormal element of P, in a row whose largest is `most`. Of e4m3, P is
// stored in units that make that largest element 2^p_exponent.
inline double p_floor(const Problem& p, const Accumulator& accumulator, double most) {
  const double floor = rounding_of_p(p).intermediate_floor;
  return p.is_quantized() ? std::ldexp(floor * most, -accumulator.p_exponent) : floor;
}

// Absolute error of a subnormal element of dS, which a provider may store multiplied by the scale,
// as cuDNN does.
inline double d_s_floor(const Rounding& rounding, double scale) {
  const double factor = std::abs(scale);
  return rounding.intermediate_floor / (factor > 0 && factor < 1 ? factor : 1);
}

// The largest distance between `value` and its nearest neighbour in the dtype.
inline double storage_error(const Rounding& rounding, double value) {
  return std::max(rounding.roundoff * std::abs(value), rounding.flush);
}

inline double square(double x) {
  return x * x;
}

// The errors of scores and dP that providers store. In fp32, storing adds no error to that of their
// sums.
struct StoredScores {
  bool rounded = false;
  Rounding rounding{};

  double variance(double value) const {
    return rounded ? square(storage_error(rounding, value)) : 0;
  }
};
inline StoredScores stored_scores(Dtype dtype) {
  return {dtype != Dtype::fp32, rounding_of(dtype)};
}

// The same of the partial results of O, of parts of the keys, that providers store before they
// merge them. Relative to each part's share of O: how many parts there are, and which, is not
// known.
inline double partials_variance(Dtype dtype) {
  return dtype == Dtype::fp32 ? 0 : square(rounding_of(dtype).roundoff);
}

// The error of a score that tensor cores sum in steps, relative to the product of its rows' norms:
// about what they cut off where the rows have no mean (docs/verifying.md). Products of int8 are
// exact.
inline double step_error_of_scores(const Problem& p, const Accumulator& accumulator) {
  const bool exact = p.quantize != Quantize::none && recipe_of(p.quantize).int8_qk;
  return accumulator.truncates && !exact ? std::ldexp(1.0, -Accumulator::kFractionBits) : 0;
}

// The share of a sum over so many keys that they cut off on the way: half a unit of each product
// and of the sum so far, in each step between two promotions, the sum being half of what it
// becomes. docs/verifying.md.
inline double step_error_of_sums(const Accumulator& accumulator, int64_t keys) {
  if (!accumulator.truncates) return 0;
  if (accumulator.promote_every != 0) keys = std::min(keys, accumulator.promote_every);
  const int64_t steps = (keys + Accumulator::kStepKeys - 1) / Accumulator::kStepKeys;
  return std::ldexp(static_cast<double>(steps * (Accumulator::kStepKeys + 1)),
                    -Accumulator::kFractionBits - 2);
}

// Relative variance of the error of a sum of `terms` in fp32, where rounding errors add up like a
// random walk (Ipsen and Zhou 2020). For a dot product it is relative to the product of the norms.
inline double summation_variance(int64_t terms) {
  return static_cast<double>(terms) * square(kFp32Roundoff);
}

}  // namespace flashbench::verify
