#include "verify/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "attention/half.h"
#include "verify/rounding.h"

namespace flashbench::verify {

namespace {

// An element with the worst error.
struct Worst {
  std::array<int64_t, 4> index{};
  double expected = 0, found = 0;
};

// The contribution of a block of rows to a TensorError.
struct Tally {
  int64_t nonfinite = 0;
  double max_abs = 0, sum_abs = 0, lambda = 0, max_bound = 0;
  double error_squares = 0, exact_squares = 0, explained_squares = 0, max_exact = 0;
  Worst first_nonfinite, worst_lambda, worst_abs;
};

bool same_nonfinite(double expected, double found) {
  return std::isnan(expected) ? std::isnan(found) : expected == found;
}

// A correct result that is too large for the dtype is stored as infinity. So may be a result whose
// error bound reaches beyond the range. A bound that is not finite excuses nothing.
bool overflows_to(Dtype dtype, double expected, double bound, double found) {
  if (!std::isinf(found)) return false;
  const double error = std::copysign(std::isfinite(bound) ? bound : 0, found);
  return round_to(dtype, static_cast<float>(expected + error)) == found;
}

// How an output is stored: bytes in units of their one factor.
Rounding rounding_of_output(const ConstTensorView& output) {
  Rounding rounding = rounding_of(output.dtype);
  if (output.descales.data != nullptr) {
    rounding.flush *= static_cast<double>(*output.descales.data);
  }
  return rounding;
}

double stored_value(const ConstTensorView& output, int64_t offset) {
  const auto value = static_cast<double>(load_element(output.data, output.dtype, offset));
  return output.descales.data == nullptr ? value
                                         : value * static_cast<double>(*output.descales.data);
}

void compare(Tally& tally, const Rounding& rounding, Dtype dtype, double expected, double bound,
             double found, const std::array<int64_t, 4>& index) {
  if (!std::isfinite(expected) || !std::isfinite(found)) {
    const bool right = std::isfinite(expected) ? overflows_to(dtype, expected, bound, found)
                                               : same_nonfinite(expected, found);
    if (!right && tally.nonfinite++ == 0) tally.first_nonfinite = {index, expected, found};
    return;
  }
  const double error = std::abs(found - expected), stored = storage_error(rounding, expected);
  const double excess = error - stored;
  // A bound that is not finite excuses nothing.
  const double lambda = excess <= 0 ? 0 : excess / (std::isfinite(bound) ? bound : 0);
  if (lambda > tally.lambda) {
    tally.lambda = lambda;
    tally.worst_lambda = {index, expected, found};
  }
  if (error > tally.max_abs) {
    tally.max_abs = error;
    tally.worst_abs = {index, expected, found};
  }
  tally.sum_abs += error;
  tally.max_bound = std::max(tally.max_bound, bound);
  tally.error_squares += square(error);
  tally.exact_squares += square(expected);
  tally.max_exact = std::max(tally.max_exact, std::abs(expected));
  tally.explained_squares += square(bound + stored);
}

Tally compare_block(const Reference& reference, size_t block_index, const ConstTensorView& output) {
  const RowBlock& block = (*reference.blocks)[block_index];
  const MatrixRef<const double> values = reference.values(block_index);
  const MatrixRef<const float> bounds = reference.bounds(block_index);
  const Rounding rounding = rounding_of_output(output);
  Tally tally;
  for (int64_t i = 0; i < values.rows; ++i) {
    const int64_t row = block.rows[static_cast<size_t>(i)];
    const int64_t offset = output.offset(block.batch, block.head, row);
    for (int64_t column = 0; column < values.cols; ++column) {
      compare(tally, rounding, output.dtype, values.row(i)[column],
              static_cast<double>(bounds.row(i)[column]), stored_value(output, offset + column),
              {block.batch, block.head, row, column});
    }
  }
  return tally;
}

void merge(Tally& total, const Tally& part) {
  if (total.nonfinite == 0) total.first_nonfinite = part.first_nonfinite;
  total.nonfinite += part.nonfinite;
  if (part.lambda > total.lambda) {
    total.lambda = part.lambda;
    total.worst_lambda = part.worst_lambda;
  }
  if (part.max_abs > total.max_abs) {
    total.max_abs = part.max_abs;
    total.worst_abs = part.worst_abs;
  }
  total.sum_abs += part.sum_abs;
  total.error_squares += part.error_squares;
  total.exact_squares += part.exact_squares;
  total.max_exact = std::max(total.max_exact, part.max_exact);
  total.explained_squares += part.explained_squares;
  total.max_bound = std::max(total.max_bound, part.max_bound);
}

// The naive error can be 0, or almost 0, where the result is exact. It is taken as at least 1/64 of
// the largest bound; elsewhere naive computations exceed that by far.
double error_ratio(const Reference& reference, const Tally& tally) {
  if (tally.max_abs == 0) return 0;
  return tally.max_abs / std::max(reference.naive_max_abs, tally.max_bound / 64);
}

std::string place(const Worst& worst) {
  return fmt::format("batch {}, head {}, row {}, column {}: found {:.9g}, expected {:.9g}",
                     worst.index[0], worst.index[1], worst.index[2], worst.index[3], worst.found,
                     worst.expected);
}

std::string describe(const TensorError& error, const Tally& tally) {
  if (error.nonfinite > 0) {
    return fmt::format(
        "{} is finite where it must not be, or the reverse, in {} of {} checked elements, first at "
        "{}",
        error.tensor, error.nonfinite, error.checked, place(tally.first_nonfinite));
  }
  return fmt::format(
      "{} is off by {:.3g}, and rounding explains {:.3g} (lambda {:.3g}; up to {:g} would pass) at "
      "{}",
      error.tensor, std::abs(tally.worst_lambda.found - tally.worst_lambda.expected),
      std::abs(tally.worst_lambda.found - tally.worst_lambda.expected) / error.lambda, error.lambda,
      kFailLambda, place(tally.worst_lambda));
}

}  // namespace

Judgement judge_tensor(const Reference& reference, const ConstTensorView& output,
                       ThreadPool& pool) {
  const size_t blocks = reference.blocks->size();
  std::vector<Tally> tallies(blocks);
  pool.parallel_for(static_cast<int64_t>(blocks), [&](int64_t item, int) {
    const auto block = static_cast<size_t>(item);
    tallies[block] = compare_block(reference, block, output);
  });
  Tally total;
  for (const Tally& tally : tallies) merge(total, tally);

  Judgement judgement;
  TensorError& error = judgement.error;
  error.tensor = reference.tensor;
  error.checked = reference.elements();
  error.nonfinite = total.nonfinite;
  error.max_abs = total.max_abs;
  error.mean_abs = total.sum_abs / static_cast<double>(std::max<int64_t>(error.checked, 1));
  error.ratio = error_ratio(reference, total);
  error.lambda = total.lambda;
  if (total.max_exact > rounding_of_output(output).flush) {
    error.rel_rms_err = std::sqrt(total.error_squares / total.exact_squares);
    error.rel_rms_explained = std::sqrt(total.explained_squares / total.exact_squares);
  }
  error.worst = total.nonfinite > 0 ? total.first_nonfinite.index
                : total.lambda > 0  ? total.worst_lambda.index
                                    : total.worst_abs.index;
  error.passed = error.nonfinite == 0 && error.lambda <= kFailLambda;
  if (!error.passed) judgement.reason = describe(error, total);
  return judgement;
}

}  // namespace flashbench::verify
