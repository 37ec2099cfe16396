// The gradients of softmax attention in fp64, tile by tile: P and dS are recomputed from the
// logsumexp and D of each row; GEMMs of them give the gradients, and the same GEMMs of squares the
// bounds.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "verify/exact.h"
#include "verify/rounding.h"

namespace flashbench::verify {

namespace {

// Rows of Q and dO, with the values that their errors depend on.
struct QueryRows {
  Rows<double> q, d_o;
  std::vector<double> q_norms, d_o_norms;
  std::vector<RowStatistics> statistics;
  std::vector<RowRange> visible;  // visible keys
};

struct KeyRows {
  Rows<double> k, v;
  std::vector<double> k_norms, v_norms;
  std::vector<int64_t> index;
};

QueryRows load_queries(const Problem& whole, const Inputs& inputs, const RowBlock& block,
                       const std::vector<RowStatistics>& statistics) {
  const Problem p = whole.request(block.batch);
  QueryRows rows{
      gather<double>(inputs.q, block), gather<double>(inputs.d_o, block), {}, {}, {}, {}};
  rows.q_norms = norms(rows.q);
  rows.d_o_norms = norms(rows.d_o);
  for (int64_t row : block.rows) {
    rows.statistics.push_back(statistics[query_index(whole, block.batch, block.head, row)]);
    rows.visible.push_back(p.visible_keys(row));
  }
  return rows;
}

KeyRows load_keys(const Inputs& inputs, const RowBlock& block) {
  KeyRows rows{
      gather<double>(inputs.k, block), gather<double>(inputs.v, block), {}, {}, block.rows};
  rows.k_norms = norms(rows.k);
  rows.v_norms = norms(rows.v);
  return rows;
}

// One tile [queries, keys] of all elementwise values; 0 where masked.
struct Tile {
  Matrix<double> p, d_s;
  // Variances of the errors of each element of P and dS, from the causes that are independent
  // between the keys of a row.
  Matrix<double> p_variance, d_s_variance;
};

// `query_terms`: the number of pairs in sums over queries. Without it, sums are over keys and have
// as many pairs as the row sees.
Tile compute_tile(const Problem& p, const StoredScores& stored, const QueryRows& queries,
                  const KeyRows& keys, std::optional<int64_t> query_terms) {
  const Rounding rounding = rounding_of(p.dtype);
  const int64_t rows = queries.q.values.rows(), cols = keys.k.values.rows();
  Tile tile{Matrix<double>(rows, cols), Matrix<double>(rows, cols), zeros<double>(rows, cols),
            zeros<double>(rows, cols)};
  gemm(Transpose::no, Transpose::yes, p.softmax_scale(), queries.q.values.view(),
       keys.k.values.view(), 0.0, tile.p.ref());
  gemm(Transpose::no, Transpose::yes, 1.0, queries.d_o.values.view(), keys.v.values.view(), 0.0,
       tile.d_s.ref());

  const double s_variance = summation_variance(p.head_dim);
  const double d_p_variance = summation_variance(p.value_dim());
  const double p_floor = square(rounding.intermediate_floor);
  const double d_s_floor_squared = square(d_s_floor(rounding, p.softmax_scale()));
  for (int64_t i = 0; i < rows; ++i) {
    const auto row = static_cast<size_t>(i);
    const double own = square(rounding.intermediate) +
                       summation_variance(query_terms.value_or(queries.visible[row].size()));
    const RowStatistics& statistics = queries.statistics[row];
    const double score_step = s_variance * square(p.softmax_scale() * queries.q_norms[row]);
    const double d_p_step = d_p_variance * square(queries.d_o_norms[row]);
    const bool nothing = statistics.logsumexp == -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < cols; ++j) {
      const auto col = static_cast<size_t>(j);
      double& probability = tile.p.row(i)[j];
      double& d_s = tile.d_s.row(i)[j];
      if (nothing || !queries.visible[row].contains(keys.index[col])) {
        probability = d_s = 0;
        continue;
      }
      const double score = probability, d_p = d_s;
      probability = std::exp(score - statistics.logsumexp);
      const double centred = d_p - statistics.d;
      d_s = probability * centred;
      tile.p_variance.row(i)[j] = p_floor;
      tile.d_s_variance.row(i)[j] = d_s_floor_squared;
      if (probability == 0) continue;  // a score of -inf is exact, and its key may not be finite
      const double relative = own + score_step * square(keys.k_norms[col]) + stored.variance(score);
      const double p_squared = square(probability);
      tile.p_variance.row(i)[j] += p_squared * relative;
      tile.d_s_variance.row(i)[j] += square(d_s) * relative + p_floor * square(centred) +
                                     p_squared * d_p_step * square(keys.v_norms[col]) +
                                     p_squared * stored.variance(d_p);
    }
  }
  return tile;
}

// The relative error that is common to all P of a row: it comes from the logsumexp, which is read
// in fp32 and used in exp2.
double common_error(const RowStatistics& statistics) {
  return 2 * kFp32Roundoff * std::abs(statistics.logsumexp);
}

// Adds the errors common to a row's elements. In a sum over queries they count as independent.
void add_row_errors(Tile& tile, const QueryRows& queries) {
  for (int64_t i = 0; i < tile.p.rows(); ++i) {
    const RowStatistics& statistics = queries.statistics[static_cast<size_t>(i)];
    const double relative = square(common_error(statistics));
    for (int64_t j = 0; j < tile.p.cols(); ++j) {
      if (tile.p.row(i)[j] == 0) continue;  // also where masked
      const double p_squared = square(tile.p.row(i)[j]);
      tile.p_variance.row(i)[j] += p_squared * relative;
      tile.d_s_variance.row(i)[j] +=
          square(tile.d_s.row(i)[j]) * relative + p_squared * statistics.d_variance;
    }
  }
}

}  // namespace

RowStatistics row_statistics(const Problem& p, const double* o, const double* d_o,
                             double logsumexp) {
  const Rounding rounding = rounding_of(p.dtype);
  RowStatistics statistics{logsumexp, 0, 0};
  double magnitude = 0;
  for (int64_t column = 0; column < p.value_dim(); ++column) {
    statistics.d += d_o[column] * o[column];
    statistics.d_variance += square(d_o[column] * storage_error(rounding, o[column]));
    magnitude += square(d_o[column] * o[column]);
  }
  statistics.d_variance += summation_variance(p.value_dim()) * magnitude;
  return statistics;
}

void query_gradients(const Problem& whole, const Inputs& inputs, const Storage& storage,
                     const RowBlock& block, const std::vector<RowStatistics>& statistics,
                     MatrixRef<double> dq, MatrixRef<float> dq_bound) {
  const Problem p = whole.request(block.batch);
  const QueryRows queries = load_queries(whole, inputs, block, statistics);
  const int64_t kv_head = block.head / p.heads_per_kv_head();
  const RowRange seen = seen_keys(p, block);

  Matrix<double> gradient = zeros<double>(dq.rows, dq.cols);
  Matrix<double> variance = zeros<double>(dq.rows, dq.cols);
  Matrix<double> mean_key = zeros<double>(dq.rows, dq.cols);  // P K, the factor of an error of D
  for (int64_t first = seen.first; first < seen.end; first += kTileRows) {
    const KeyRows keys = load_keys(inputs, tile_at(block.batch, kv_head, first, seen.end));
    const Tile tile = compute_tile(p, stored_scores(storage.scores), queries, keys, std::nullopt);
    const auto visible = [&](int64_t i, int64_t j) {
      return queries.visible[static_cast<size_t>(i)].contains(first + j);
    };
    accumulate(Transpose::no, tile.d_s.view(), keys.k, gradient.ref(), visible);
    accumulate(Transpose::no, tile.p.view(), keys.k, mean_key.ref(), visible);
    accumulate(Transpose::no, tile.d_s_variance.view(), squares(keys.k), variance.ref(), visible);
  }
  const double scale = p.softmax_scale();
  for (int64_t i = 0; i < dq.rows; ++i) {
    const auto row = static_cast<size_t>(i);
    const RowStatistics& statistic = queries.statistics[row];
    const double d_error = std::sqrt(statistic.d_variance);
    const double summation = std::sqrt(summation_variance(queries.visible[row].size()));
    for (int64_t column = 0; column < dq.cols; ++column) {
      const double value = scale * gradient.row(i)[column];
      dq.row(i)[column] = value;
      dq_bound.row(i)[column] =
          static_cast<float>(std::abs(scale) * (std::sqrt(variance.row(i)[column]) +
                                                d_error * std::abs(mean_key.row(i)[column])) +
                             (summation + common_error(statistic)) * std::abs(value));
    }
  }
}

void key_gradients(const Problem& whole, const Inputs& inputs, const Storage& storage,
                   const RowBlock& block, const std::vector<RowStatistics>& statistics,
                   MatrixRef<double> dk, MatrixRef<float> dk_bound, MatrixRef<double> dv,
                   MatrixRef<float> dv_bound) {
  const Problem p = whole.request(block.batch);
  const KeyRows keys = load_keys(inputs, block);
  Matrix<double> dk_sum = zeros<double>(dk.rows, dk.cols);
  Matrix<double> dv_sum = zeros<double>(dv.rows, dv.cols);
  Matrix<double> dk_variance = zeros<double>(dk.rows, dk.cols);
  Matrix<double> dv_variance = zeros<double>(dv.rows, dv.cols);

  const int64_t terms = p.heads_per_kv_head() * p.q_len;
  for (int64_t i = 0; i < p.heads_per_kv_head(); ++i) {
    const int64_t head = block.head * p.heads_per_kv_head() + i;
    for (int64_t first = 0; first < p.q_len; first += kTileRows) {
      const RowBlock rows = tile_at(block.batch, head, first, p.q_len);
      if (!meet(p, rows, block)) continue;
      const QueryRows queries = load_queries(whole, inputs, rows, statistics);
      Tile tile = compute_tile(p, stored_scores(storage.scores), queries, keys, terms);
      add_row_errors(tile, queries);
      const auto visible = [&](int64_t query, int64_t key) {
        return queries.visible[static_cast<size_t>(query)].contains(
            keys.index[static_cast<size_t>(key)]);
      };
      accumulate(Transpose::yes, tile.p.view(), queries.d_o, dv_sum.ref(), visible);
      accumulate(Transpose::yes, tile.d_s.view(), queries.q, dk_sum.ref(), visible);
      accumulate(Transpose::yes, tile.p_variance.view(), squares(queries.d_o), dv_variance.ref(),
                 visible);
      accumulate(Transpose::yes, tile.d_s_variance.view(), squares(queries.q), dk_variance.ref(),
                 visible);
    }
  }
  const double scale = p.softmax_scale(), summation = std::sqrt(summation_variance(terms));
  const auto finish = [&](double factor, const Matrix<double>& sum, const Matrix<double>& variance,
                          MatrixRef<double> value, MatrixRef<float> bound) {
    for (int64_t i = 0; i < value.rows; ++i) {
      for (int64_t column = 0; column < value.cols; ++column) {
        value.row(i)[column] = factor * sum.row(i)[column];
        bound.row(i)[column] =
            static_cast<float>(std::abs(factor) * (std::sqrt(variance.row(i)[column]) +
                                                   summation * std::abs(sum.row(i)[column])));
      }
    }
  };
  finish(scale, dk_sum, dk_variance, dk, dk_bound);
  finish(1.0, dv_sum, dv_variance, dv, dv_bound);
}

}  // namespace flashbench::verify
