#include "verify/host_naive.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "attention/half.h"
#include "verify/exact.h"
#include "verify/matrix.h"

namespace flashbench::verify {

namespace {

// Statistics of one query row: P = exp(S - max) / sum, and D, the row sum of P dP.
struct NaiveRow {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
  float d = 0;

  float probability(float score) const { return sum == 0 ? 0 : std::exp(score - max) / sum; }
};

void round_all(Dtype dtype, MatrixRef<float> matrix) {
  if (dtype == Dtype::fp32) return;
  for (int64_t i = 0; i < matrix.rows; ++i) {
    for (int64_t j = 0; j < matrix.cols; ++j) {
      matrix.row(i)[j] = round_to(dtype, matrix.row(i)[j]);
    }
  }
}

// round(alpha * a b^T)
void rounded_product(Dtype dtype, float alpha, const Matrix<float>& a, const Matrix<float>& b,
                     MatrixRef<float> c) {
  gemm(Transpose::no, Transpose::yes, alpha, a.view(), b.view(), 0.0f, c);
  round_all(dtype, c);
}

// a b^T for a block of query rows and these keys of a tensor.
Matrix<float> product_with_keys(const Problem& p, float alpha, const Matrix<float>& a,
                                const ConstTensorView& tensor, int64_t batch, int64_t kv_head,
                                RowRange keys) {
  Matrix<float> strip(a.rows(), keys.size());
  for (int64_t first = keys.first; first < keys.end; first += kTileRows) {
    const Rows<float> tile = gather<float>(tensor, tile_at(batch, kv_head, first, keys.end));
    rounded_product(p.dtype, alpha, a, tile.values,
                    strip.ref().columns(first - keys.first, tile.values.rows()));
  }
  return strip;
}

// Turns the row's `length` scores into rounded probabilities, 0 outside of `visible`.
NaiveRow softmax(Dtype dtype, float* row, RowRange visible, int64_t length) {
  NaiveRow statistics;
  for (int64_t j = visible.first; j < visible.end; ++j) {
    statistics.max = std::max(statistics.max, row[j]);
  }
  for (int64_t j = visible.first; j < visible.end; ++j) {
    row[j] = std::exp(row[j] - statistics.max);
    statistics.sum += row[j];
  }
  for (int64_t j = visible.first; j < visible.end; ++j) {
    row[j] = round_to(dtype, row[j] / statistics.sum);
  }
  std::fill(row, row + visible.first, 0.0f);
  std::fill(row + visible.end, row + length, 0.0f);
  return statistics;
}

struct NaiveBlock {
  RowRange keys;
  Matrix<float> p;  // [rows, keys]
  std::vector<NaiveRow> rows;
};

NaiveBlock naive_softmax(const Problem& whole, const Inputs& inputs, const RowBlock& block) {
  const Problem p = whole.request(block.batch);
  const RowRange keys = seen_keys(p, block);
  const Rows<float> q = gather<float>(inputs.q, block);
  NaiveBlock result{keys,
                    product_with_keys(p, static_cast<float>(p.softmax_scale()), q.values, inputs.k,
                                      block.batch, block.head / p.heads_per_kv_head(), keys),
                    {}};
  for (int64_t i = 0; i < q.values.rows(); ++i) {
    const RowRange visible = p.visible_keys(block.rows[static_cast<size_t>(i)]);
    result.rows.push_back(softmax(p.dtype, result.p.row(i),
                                  {visible.first - keys.first, visible.end - keys.first},
                                  keys.size()));
  }
  return result;
}

// The largest difference over elements that are finite in both.
double max_abs_error(Dtype stored, const Matrix<float>& naive, MatrixRef<const double> exact) {
  double max = 0;
  for (int64_t i = 0; i < exact.rows; ++i) {
    for (int64_t j = 0; j < exact.cols; ++j) {
      const double error = std::abs(round_to(stored, naive.row(i)[j]) - exact.row(i)[j]);
      if (std::isfinite(error)) max = std::max(max, error);
    }
  }
  return max;
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

// All query rows of the key heads that `keys` belong to.
std::vector<RowBlock> query_blocks_of_groups(const Problem& p, const std::vector<RowBlock>& keys) {
  std::set<std::pair<int64_t, int64_t>> groups;
  for (const RowBlock& block : keys) groups.insert({block.batch, block.head});
  std::vector<RowBlock> blocks;
  for (const auto& [batch, kv_head] : groups) {
    for (int64_t i = 0; i < p.heads_per_kv_head(); ++i) {
      append_query_blocks(blocks, p, batch, kv_head * p.heads_per_kv_head() + i,
                          all_rows(p.q_len_of(batch)));
    }
  }
  return blocks;
}

// Writes the softmax statistics and D of a block's rows to an array, at Problem::query_index.
void naive_statistics(const Problem& p, const Inputs& inputs, const RowBlock& block,
                      std::vector<NaiveRow>& statistics) {
  const NaiveBlock naive = naive_softmax(p, inputs, block);
  const Rows<float> d_o = gather<float>(inputs.d_o, block);
  const Matrix<float> d_p = product_with_keys(p, 1.0f, d_o.values, inputs.v, block.batch,
                                              block.head / p.heads_per_kv_head(), naive.keys);
  for (size_t i = 0; i < block.rows.size(); ++i) {
    NaiveRow row = naive.rows[i];
    const auto index = static_cast<int64_t>(i);
    for (int64_t j = 0; j < naive.p.cols(); ++j) {
      row.d += naive.p.row(index)[j] * d_p.row(index)[j];
    }
    statistics[query_index(p, block.batch, block.head, block.rows[i])] = row;
  }
}

struct NaiveTile {
  Matrix<float> q, d_o, k, v;
  Matrix<float> p, d_s;
};

NaiveTile naive_tile(const Problem& whole, const Inputs& inputs, const RowBlock& queries,
                     const RowBlock& keys, const std::vector<NaiveRow>& statistics) {
  const Problem p = whole.request(queries.batch);
  NaiveTile tile;
  tile.q = gather<float>(inputs.q, queries).values;
  tile.d_o = gather<float>(inputs.d_o, queries).values;
  tile.k = gather<float>(inputs.k, keys).values;
  tile.v = gather<float>(inputs.v, keys).values;
  tile.p = Matrix<float>(tile.q.rows(), tile.k.rows());
  tile.d_s = Matrix<float>(tile.q.rows(), tile.k.rows());
  rounded_product(p.dtype, static_cast<float>(p.softmax_scale()), tile.q, tile.k, tile.p.ref());
  rounded_product(p.dtype, 1.0f, tile.d_o, tile.v, tile.d_s.ref());
  for (size_t i = 0; i < queries.rows.size(); ++i) {
    const int64_t query = queries.rows[i];
    const RowRange visible = p.visible_keys(query);
    const NaiveRow& row = statistics[query_index(whole, queries.batch, queries.head, query)];
    float* probability = tile.p.row(static_cast<int64_t>(i));
    float* d_s = tile.d_s.row(static_cast<int64_t>(i));
    for (size_t j = 0; j < keys.rows.size(); ++j) {
      probability[j] =
          visible.contains(keys.rows[j]) ? round_to(p.dtype, row.probability(probability[j])) : 0;
      d_s[j] = round_to(p.dtype, probability[j] * (d_s[j] - row.d));
    }
  }
  return tile;
}

Matrix<float> naive_query_gradient(const Problem& p, const Inputs& inputs, const RowBlock& block,
                                   const std::vector<NaiveRow>& statistics) {
  Matrix<float> dq = zeros<float>(static_cast<int64_t>(block.rows.size()), p.head_dim);
  const auto scale = static_cast<float>(p.softmax_scale());
  const RowRange seen = seen_keys(p.request(block.batch), block);
  for (int64_t first = seen.first; first < seen.end; first += kTileRows) {
    const RowBlock keys = tile_at(block.batch, block.head / p.heads_per_kv_head(), first, seen.end);
    const NaiveTile tile = naive_tile(p, inputs, block, keys, statistics);
    gemm(Transpose::no, Transpose::no, scale, tile.d_s.view(), tile.k.view(), 1.0f, dq.ref());
  }
  return dq;
}

struct NaiveKeyGradients {
  Matrix<float> dk, dv;
};

NaiveKeyGradients naive_key_gradients(const Problem& p, const Inputs& inputs, const RowBlock& block,
                                      const std::vector<NaiveRow>& statistics) {
  const auto rows = static_cast<int64_t>(block.rows.size());
  NaiveKeyGradients result{zeros<float>(rows, p.head_dim), zeros<float>(rows, p.value_dim())};
  const auto scale = static_cast<float>(p.softmax_scale());
  const Problem request = p.request(block.batch);
  for (int64_t i = 0; i < p.heads_per_kv_head(); ++i) {
    const int64_t head = block.head * p.heads_per_kv_head() + i;
    for (int64_t first = 0; first < request.q_len; first += kTileRows) {
      const RowBlock queries = tile_at(block.batch, head, first, request.q_len);
      if (!meet(request, queries, block)) continue;
      const NaiveTile tile = naive_tile(p, inputs, queries, block, statistics);
      gemm(Transpose::yes, Transpose::no, scale, tile.d_s.view(), tile.q.view(), 1.0f,
           result.dk.ref());
      gemm(Transpose::yes, Transpose::no, 1.0f, tile.p.view(), tile.d_o.view(), 1.0f,
           result.dv.ref());
    }
  }
  return result;
}

}  // namespace

void measure_naive_forward(const Problem& problem, const Inputs& inputs, Reference& o,
                           Reference& logsumexp, ThreadPool& pool) {
  Problem p = problem;
  p.dtype = problem.output_dtype();
  const std::vector<RowBlock>& blocks = *o.blocks;
  std::vector<double> o_errors(blocks.size()), logsumexp_errors(blocks.size());
  pool.parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t item, int) {
    const auto index = static_cast<size_t>(item);
    const RowBlock& block = blocks[index];
    const NaiveBlock naive = naive_softmax(p, inputs, block);
    const auto rows = static_cast<int64_t>(block.rows.size());
    Matrix<float> naive_o = zeros<float>(rows, p.value_dim());
    const int64_t kv_head = block.head / p.heads_per_kv_head();
    const RowRange keys = naive.keys;
    for (int64_t first = keys.first; first < keys.end; first += kTileRows) {
      const Rows<float> v = gather<float>(inputs.v, tile_at(block.batch, kv_head, first, keys.end));
      gemm(Transpose::no, Transpose::no, 1.0f,
           naive.p.ref().columns(first - keys.first, v.values.rows()), v.values.view(), 1.0f,
           naive_o.ref());
    }
    Matrix<float> naive_logsumexp(rows, 1);
    for (int64_t i = 0; i < rows; ++i) {
      const NaiveRow& row = naive.rows[static_cast<size_t>(i)];
      *naive_logsumexp.row(i) = row.max + std::log(row.sum);
    }
    o_errors[index] = max_abs_error(o.dtype, naive_o, std::as_const(o).values(index));
    logsumexp_errors[index] =
        max_abs_error(Dtype::fp32, naive_logsumexp, std::as_const(logsumexp).values(index));
  });
  o.naive_max_abs = largest(o_errors);
  logsumexp.naive_max_abs = largest(logsumexp_errors);
}

void measure_naive_backward(const Problem& p, const Inputs& inputs, Reference& dq, Reference& dk,
                            Reference& dv, ThreadPool& pool) {
  std::vector<NaiveRow> statistics(static_cast<size_t>(p.query_rows()));
  const std::vector<RowBlock> all_queries = query_blocks_of_groups(p, *dk.blocks);
  pool.parallel_for(static_cast<int64_t>(all_queries.size()), [&](int64_t item, int) {
    naive_statistics(p, inputs, all_queries[static_cast<size_t>(item)], statistics);
  });

  std::vector<double> dq_errors(dq.blocks->size());
  pool.parallel_for(static_cast<int64_t>(dq_errors.size()), [&](int64_t item, int) {
    const auto index = static_cast<size_t>(item);
    const Matrix<float> naive = naive_query_gradient(p, inputs, (*dq.blocks)[index], statistics);
    dq_errors[index] = max_abs_error(dq.dtype, naive, std::as_const(dq).values(index));
  });

  std::vector<double> dk_errors(dk.blocks->size()), dv_errors(dk.blocks->size());
  pool.parallel_for(static_cast<int64_t>(dk_errors.size()), [&](int64_t item, int) {
    const auto index = static_cast<size_t>(item);
    const NaiveKeyGradients naive = naive_key_gradients(p, inputs, (*dk.blocks)[index], statistics);
    dk_errors[index] = max_abs_error(dk.dtype, naive.dk, std::as_const(dk).values(index));
    dv_errors[index] = max_abs_error(dv.dtype, naive.dv, std::as_const(dv).values(index));
  });
  dq.naive_max_abs = largest(dq_errors);
  dk.naive_max_abs = largest(dk_errors);
  dv.naive_max_abs = largest(dv_errors);
}

}  // namespace flashbench::verify
