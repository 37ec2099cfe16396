#include "tests/kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/half.h"

namespace flashbench {

namespace {

constexpr double kUnit = 0x1p-24;  // unit roundoff of fp32

// A tensor's elements as doubles, dense in [batch, heads, length, head_dim].
struct Dense {
  explicit Dense(const ConstTensorView& t) : view(t), values(static_cast<size_t>(t.elements())) {
    for (int64_t b = 0; b < t.batch; ++b) {
      for (int64_t h = 0; h < t.heads; ++h) {
        for (int64_t row = 0; row < t.length; ++row) {
          for (int64_t c = 0; c < t.head_dim; ++c) {
            values[static_cast<size_t>(index(b, h, row) + c)] =
                load_element(t.data, t.dtype, t.offset(b, h, row) + c);
          }
        }
      }
    }
  }
  int64_t index(int64_t b, int64_t h, int64_t row) const {
    return ((b * view.heads + h) * view.length + row) * view.head_dim;
  }
  const double* row(int64_t b, int64_t h, int64_t r) const {
    return &values[static_cast<size_t>(index(b, h, r))];
  }

  ConstTensorView view;
  std::vector<double> values;
};

struct Dot {
  double sum = 0, magnitude = 0;  // of x y and of |x y|
};
Dot dot(const double* x, const double* y, int64_t n) {
  Dot result;
  for (int64_t i = 0; i < n; ++i) {
    result.sum += x[i] * y[i];
    result.magnitude += std::abs(x[i] * y[i]);
  }
  return result;
}

// One row of the softmax.
struct Row {
  int64_t first_key;
  std::vector<double> p;  // of the keys that the query sees, from that one on
  double logsumexp;
  double p_error;          // relative error allowed to P
  double logsumexp_error;  // absolute
};

// P's relative error comes from the absolute error of the scores (rounding the scale into Q and
// summing head_dim products, each with a few units of sum |q k|), and from the exponential and the
// sums.
Row softmax_row(const Problem& p, const double* q, const Dense& k, int64_t b, int64_t kv_head,
                int64_t query) {
  const RowRange visible = p.visible_keys(query);
  Row row{visible.first, {}, 0, 0, 0};
  double largest = -std::numeric_limits<double>::infinity(), magnitude = 0;
  for (int64_t key = visible.first; key < visible.end; ++key) {
    const Dot s = dot(q, k.row(b, kv_head, key), p.head_dim);
    row.p.push_back(p.softmax_scale() * s.sum);
    largest = std::max(largest, row.p.back());
    magnitude = std::max(magnitude, std::abs(p.softmax_scale()) * s.magnitude);
  }
  double sum = 0;
  for (double& value : row.p) sum += value = std::exp(value - largest);
  for (double& value : row.p) value /= sum;
  row.logsumexp = largest + std::log(sum);
  const double sums = 8 + std::sqrt(static_cast<double>(row.p.size()));
  row.p_error = kUnit * (sums + 8 * magnitude);
  row.logsumexp_error =
      row.p_error + kUnit * 2 * (magnitude + std::log(1 + static_cast<double>(row.p.size())));
  return row;
}

void resize(Expected& e, int64_t size) {
  e.value.assign(static_cast<size_t>(size), 0.0);
  e.error.assign(static_cast<size_t>(size), 0.0);
}

// e[at ...] += factor * row; the error of factor is `error` * `magnitude`.
void add_row(Expected& e, int64_t at, double factor, double magnitude, const double* row,
             int64_t columns, double error) {
  for (int64_t c = 0; c < columns; ++c) {
    const auto i = static_cast<size_t>(at + c);
    e.value[i] += factor * row[c];
    e.error[i] += error * magnitude * std::abs(row[c]);
  }
}

}  // namespace

ExpectedForward reference_forward(const Problem& p, const Inputs& in) {
  const Dense q(in.q), k(in.k), v(in.v);
  ExpectedForward expected;
  resize(expected.o, p.output_elements());
  resize(expected.logsumexp, p.query_rows());
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      const int64_t kv_head = h / p.heads_per_kv_head();
      for (int64_t query = 0; query < p.q_len; ++query) {
        const Row row = softmax_row(p, q.row(b, h, query), k, b, kv_head, query);
        const auto at = static_cast<size_t>((b * p.q_heads + h) * p.q_len + query);
        expected.logsumexp.value[at] = row.logsumexp;
        expected.logsumexp.error[at] = row.logsumexp_error;
        for (size_t key = 0; key < row.p.size(); ++key) {
          add_row(expected.o, static_cast<int64_t>(at) * p.value_dim(), row.p[key], row.p[key],
                  v.row(b, kv_head, row.first_key + static_cast<int64_t>(key)), p.value_dim(),
                  row.p_error);
        }
      }
    }
  }
  return expected;
}

ExpectedBackward reference_backward(const Problem& p, const Inputs& in) {
  const Dense q(in.q), k(in.k), v(in.v), o(in.o), d_o(in.d_o);
  const double scale = p.softmax_scale();
  ExpectedBackward expected;
  resize(expected.dq, p.query_elements());
  resize(expected.dk, p.key_elements());
  resize(expected.dv, p.value_elements());
  // Sums over the rows that see a key, and over the products within a row.
  const double sums = kUnit * (8 + std::sqrt(static_cast<double>(p.q_len * p.heads_per_kv_head())) +
                               std::sqrt(static_cast<double>(std::max(p.head_dim, p.value_dim()))));
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      const int64_t kv_head = h / p.heads_per_kv_head();
      for (int64_t query = 0; query < p.q_len; ++query) {
        const double* q_row = q.row(b, h, query);
        const double* d_o_row = d_o.row(b, h, query);
        const Row row = softmax_row(p, q_row, k, b, kv_head, query);
        const Dot delta = dot(d_o_row, o.row(b, h, query), p.value_dim());
        const double error = row.p_error + row.logsumexp_error + sums;
        for (size_t i = 0; i < row.p.size(); ++i) {
          const int64_t key = row.first_key + static_cast<int64_t>(i);
          const Dot dp = dot(d_o_row, v.row(b, kv_head, key), p.value_dim());
          const double ds = scale * row.p[i] * (dp.sum - delta.sum);
          const double magnitude = std::abs(scale) * row.p[i] * (dp.magnitude + delta.magnitude);
          add_row(expected.dv, v.index(b, kv_head, key), row.p[i], row.p[i], d_o_row, p.value_dim(),
                  error);
          add_row(expected.dq, q.index(b, h, query), ds, magnitude, k.row(b, kv_head, key),
                  p.head_dim, error);
          add_row(expected.dk, k.index(b, kv_head, key), ds, magnitude, q_row, p.head_dim, error);
        }
      }
    }
  }
  return expected;
}

}  // namespace flashbench
