// Softmax attention of a block of query rows in fp64: scores, softmax and output, then the bounds.
#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/exact.h"
#include "verify/rounding.h"
#include "verify/verdict.h"

namespace flashbench::verify {

namespace {

// Turns visible scores into probabilities in place and returns their logsumexp. Scores that are
// all -inf count as masked; a NaN or +inf makes the row NaN.
double softmax(double* visible, int64_t count) {
  double max = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < count; ++j) max = std::max(max, visible[j]);
  double sum = 0;
  for (int64_t j = 0; j < count; ++j) {
    visible[j] = max == -std::numeric_limits<double>::infinity() && !std::isnan(visible[j])
                     ? 0.0
                     : std::exp(visible[j] - max);
    sum += visible[j];
  }
  if (sum == 0) return -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < count; ++j) visible[j] /= sum;
  return max + std::log(sum);
}

// The errors of the sum of P of one query row.
struct RowErrors {
  double score_variance = 0;  // from the scores' own errors
  double score_bias = 0;      // from errors that all scores may have alike
  double swallowed = 0;       // by terms too small to change the sum
  double flushed = 0;         // terms of the sum that are multiplied as 0
};

// What is the same for all rows and tiles.
struct Precision {
  Precision(const Problem& p, const Storage& storage)
      : rounding(rounding_of_p(p)),
        stored(stored_scores(storage.scores)),
        partials(partials_variance(storage.partials)),
        step_of_scores(step_error_of_scores(p, storage.accumulator)),
        accumulator(storage.accumulator) {}

  Rounding rounding;  // of P
  StoredScores stored;
  double partials;        // relative variance
  double step_of_scores;  // step_error_of_scores
  Accumulator accumulator;
};

// For the keys of one row in the tile from `first` on: computes the variance of each P, and adds to
// the row's errors.
void add_errors(const Problem& p, const Precision& precision, RowRange visible, int64_t first,
                double q_norm, const std::vector<double>& k_norms, const double* probability,
                double most_probable, double logsumexp, double* p_variance, RowErrors& errors) {
  const double relative = square(precision.rounding.intermediate) + precision.partials +
                          summation_variance(visible.size());
  const double least = p_floor(p, precision.accumulator, most_probable), floor = square(least);
  const double scaled_norm = std::abs(p.softmax_scale()) * q_norm;
  const double score =
      (summation_variance(p.head_dim) + square(precision.step_of_scores)) * square(scaled_norm);
  const int64_t end = std::min(static_cast<int64_t>(k_norms.size()), visible.end - first);
  for (int64_t j = std::max<int64_t>(0, visible.first - first); j < end; ++j) {
    p_variance[j] = floor;
    if (probability[j] == 0) continue;  // a score of -inf is exact, and its key may not be finite
    const double p_squared = square(probability[j]);
    double from_score = p_squared * score * square(k_norms[static_cast<size_t>(j)]);
    if (precision.stored.rounded) {
      from_score += p_squared * precision.stored.variance(logsumexp + std::log(probability[j]));
    }
    p_variance[j] += p_squared * relative + from_score;
    errors.score_variance += from_score;
    errors.score_bias +=
        probability[j] * precision.step_of_scores * scaled_norm * k_norms[static_cast<size_t>(j)];
    errors.swallowed += probability[j] < 2 * kFp32Roundoff ? probability[j] : 0;
    errors.flushed += p.is_quantized() && probability[j] < least ? probability[j] : 0;
  }
}

std::vector<double> largest_of_rows(const Matrix<double>& p) {
  std::vector<double> largest(static_cast<size_t>(p.rows()));
  for (int64_t i = 0; i < p.rows(); ++i) {
    for (int64_t j = 0; j < p.cols(); ++j) {
      largest[static_cast<size_t>(i)] = std::max(largest[static_cast<size_t>(i)], p.row(i)[j]);
    }
  }
  return largest;
}

}  // namespace

ForwardRows forward_rows(const Problem& whole, const Inputs& inputs, const RowBlock& block) {
  const Problem p = whole.request(block.batch);
  const Rows<double> q = gather<double>(inputs.q, block);
  const int64_t rows = q.values.rows();
  const RowRange keys = seen_keys(p, block);
  const int64_t kv_head = block.head / p.heads_per_kv_head();

  ForwardRows result{Matrix<double>(rows, keys.size()), zeros<double>(rows, p.value_dim()),
                     std::vector<double>(block.rows.size())};
  for (int64_t first = keys.first; first < keys.end; first += kTileRows) {
    const RowBlock tile = tile_at(block.batch, kv_head, first, keys.end);
    const auto count = static_cast<int64_t>(tile.rows.size());
    const Rows<double> k = gather<double>(inputs.k, tile);
    gemm(Transpose::no, Transpose::yes, p.softmax_scale(), q.values.view(), k.values.view(), 0.0,
         result.p.ref().columns(first - keys.first, count));
  }
  for (int64_t i = 0; i < rows; ++i) {
    const RowRange visible = p.visible_keys(block.rows[static_cast<size_t>(i)]);
    double* const row = result.p.row(i);
    std::fill(row, row + (visible.first - keys.first), 0.0);
    std::fill(row + (visible.end - keys.first), row + keys.size(), 0.0);
    result.logsumexp[static_cast<size_t>(i)] =
        softmax(row + (visible.first - keys.first), visible.size());
  }
  for (int64_t first = keys.first; first < keys.end; first += kTileRows) {
    const RowBlock tile = tile_at(block.batch, kv_head, first, keys.end);
    const auto count = static_cast<int64_t>(tile.rows.size());
    const Rows<double> v = gather<double>(inputs.v, tile);
    accumulate(Transpose::no, result.p.ref().columns(first - keys.first, count), v, result.o.ref(),
               [&](int64_t i, int64_t j) {
                 return p.visible_keys(block.rows[static_cast<size_t>(i)]).contains(first + j);
               });
  }
  return result;
}

void forward_bounds(const Problem& whole, const Inputs& inputs, const Storage& storage,
                    const RowBlock& block, const ForwardRows& forward, MatrixRef<float> o_bound,
                    MatrixRef<float> logsumexp_bound) {
  const Problem p = whole.request(block.batch);
  const Precision precision(p, storage);
  const std::vector<double> q_norms = norms(gather<double>(inputs.q, block));
  const int64_t kv_head = block.head / p.heads_per_kv_head();
  const RowRange keys = seen_keys(p, block);
  Matrix<double> variance = zeros<double>(o_bound.rows, p.value_dim());
  Matrix<double> magnitude = zeros<double>(o_bound.rows, p.value_dim());  // of what O is the sum of
  std::vector<RowErrors> errors(block.rows.size());
  const std::vector<double> most_probable = largest_of_rows(forward.p);
  for (int64_t first = keys.first; first < keys.end; first += kTileRows) {
    const RowBlock tile = tile_at(block.batch, kv_head, first, keys.end);
    const std::vector<double> k_norms = norms(gather<double>(inputs.k, tile));
    Matrix<double> p_variance = zeros<double>(o_bound.rows, static_cast<int64_t>(k_norms.size()));
    for (size_t i = 0; i < block.rows.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      add_errors(p, precision, p.visible_keys(block.rows[i]), first, q_norms[i], k_norms,
                 forward.p.row(row) + (first - keys.first), most_probable[i], forward.logsumexp[i],
                 p_variance.row(row), errors[i]);
    }
    const Rows<double> v = gather<double>(inputs.v, tile);
    const auto visible = [&](int64_t i, int64_t j) {
      return p.visible_keys(block.rows[static_cast<size_t>(i)]).contains(first + j);
    };
    accumulate(Transpose::no, p_variance.view(), squares(v), variance.ref(), visible);
    if (precision.accumulator.truncates) {
      accumulate(Transpose::no,
                 forward.p.view().columns(first - keys.first, static_cast<int64_t>(k_norms.size())),
                 magnitudes(v), magnitude.ref(), visible);
    }
  }

  for (size_t i = 0; i < block.rows.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    const int64_t visible = p.visible_keys(block.rows[i]).size();
    const double sum_error = std::sqrt(summation_variance(visible)) + errors[i].swallowed;
    const double cut_off = step_error_of_sums(precision.accumulator, visible);
    for (int64_t column = 0; column < p.value_dim(); ++column) {
      const double o = forward.o.row(row)[column], from_p = variance.row(row)[column];
      const double partial_sum = std::abs(o) + std::sqrt(from_p) / precision.rounding.intermediate;
      // Not even what cuts off all is to exceed kFailLambda.
      const double lost = std::min(cut_off * partial_sum, magnitude.row(row)[column] / kFailLambda);
      o_bound.row(row)[column] = static_cast<float>(
          std::sqrt(from_p + square(o) * (errors[i].score_variance + precision.partials)) +
          (sum_error + errors[i].flushed) * std::abs(o) + lost);
    }
    logsumexp_bound.row(row)[0] =
        static_cast<float>(sum_error + std::sqrt(errors[i].score_variance) + errors[i].score_bias +
                           kFp32Roundoff * (4 + 2 * std::abs(forward.logsumexp[i])));
  }
}

}  // namespace flashbench::verify
