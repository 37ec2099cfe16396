#include "mutants/eager.h"

#include <algorithm>
#include <cmath>

#include "attention/half.h"
#include "verify/matrix.h"

namespace flashbench::verify {

namespace {

using Rounded = Matrix<float>;

void round_all(Dtype dtype, MatrixRef<float> matrix) {
  for (int64_t i = 0; i < matrix.rows; ++i) {
    for (int64_t j = 0; j < matrix.cols; ++j) {
      matrix.row(i)[j] = round_to(dtype, matrix.row(i)[j]);
    }
  }
}

// round(op(a) op(b))
Rounded product(Dtype dtype, Transpose op_a, const Rounded& a, Transpose op_b, const Rounded& b) {
  Rounded c(op_a == Transpose::no ? a.rows() : a.cols(),
            op_b == Transpose::no ? b.cols() : b.rows());
  gemm(op_a, op_b, 1.0f, a.view(), b.view(), 0.0f, c.ref());
  round_all(dtype, c.ref());
  return c;
}

Rounded scaled(Dtype dtype, const Rounded& matrix, float factor) {
  Rounded result(matrix.rows(), matrix.cols());
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    std::transform(matrix.row(i), matrix.row(i) + matrix.cols(), result.row(i),
                   [&](float value) { return round_to(dtype, value * factor); });
  }
  return result;
}

Rounded head_of(const ConstTensorView& tensor, int64_t batch, int64_t head) {
  return std::move(gather<float>(tensor, {batch, head, all_rows(tensor.length)}).values);
}

// Turns scores into probabilities, 0 where masked.
void softmax(const Problem& p, MatrixRef<float> scores) {
  for (int64_t i = 0; i < scores.rows; ++i) {
    float* row = scores.row(i);
    const RowRange visible = p.visible_keys(i);
    std::fill(row, row + visible.first, 0.0f);
    std::fill(row + visible.end, row + scores.cols, 0.0f);
    if (visible.empty()) continue;
    const float max = *std::max_element(row + visible.first, row + visible.end);
    float sum = 0;
    for (int64_t j = visible.first; j < visible.end; ++j) sum += row[j] = std::exp(row[j] - max);
    for (int64_t j = visible.first; j < visible.end; ++j) row[j] = round_to(p.dtype, row[j] / sum);
  }
}

// Turns dP into dS = P (dP - sum of P dP).
void softmax_gradient(Dtype dtype, const Rounded& probability, MatrixRef<float> gradient) {
  for (int64_t i = 0; i < gradient.rows; ++i) {
    const float* p = probability.row(i);
    float* row = gradient.row(i);
    float sum = 0;
    for (int64_t j = 0; j < gradient.cols; ++j) sum += p[j] * row[j];
    for (int64_t j = 0; j < gradient.cols; ++j) row[j] = round_to(dtype, p[j] * (row[j] - sum));
  }
}

void append(std::vector<float>& to, const Rounded& rows) {
  to.insert(to.end(), rows.row(0), rows.row(0) + rows.rows() * rows.cols());
}

void add(Rounded& sum, const Rounded& term) {
  const int64_t count = sum.rows() * sum.cols();
  std::transform(sum.row(0), sum.row(0) + count, term.row(0), sum.row(0), std::plus<>());
}

// One K/V head with the query heads that read it.
Eager eager_group(const Problem& p, const Inputs& in, int64_t batch, int64_t kv_head) {
  const auto no = Transpose::no, yes = Transpose::yes;
  const auto scale = static_cast<float>(p.softmax_scale());
  const Rounded k = scaled(p.dtype, head_of(in.k, batch, kv_head), scale);
  const Rounded v = head_of(in.v, batch, kv_head);
  Eager result;
  Rounded dk = zeros<float>(p.kv_len, p.head_dim), dv = zeros<float>(p.kv_len, p.value_dim());
  for (int64_t i = 0; i < p.heads_per_kv_head(); ++i) {
    const int64_t head = kv_head * p.heads_per_kv_head() + i;
    const Rounded q = head_of(in.q, batch, head);
    Rounded probability = product(p.dtype, no, q, yes, k);
    softmax(p, probability.ref());
    append(result.o, product(p.dtype, no, probability, no, v));
    if (p.pass == Pass::forward) continue;

    const Rounded d_o = head_of(in.d_o, batch, head);
    add(dv, product(p.dtype, yes, probability, no, d_o));
    Rounded d_s = product(p.dtype, no, d_o, yes, v);
    softmax_gradient(p.dtype, probability, d_s.ref());
    append(result.dq, product(p.dtype, no, d_s, no, k));
    add(dk, scaled(p.dtype, product(p.dtype, yes, d_s, no, q), scale));
  }
  if (p.pass == Pass::backward) {
    round_all(p.dtype, dk.ref());
    round_all(p.dtype, dv.ref());
    append(result.dk, dk);
    append(result.dv, dv);
  }
  return result;
}

}  // namespace

Eager eager_attention(const Problem& p, const Inputs& inputs, ThreadPool& pool) {
  std::vector<Eager> groups(static_cast<size_t>(p.batch * p.kv_heads));
  pool.parallel_for(p.batch * p.kv_heads, [&](int64_t item, int) {
    groups[static_cast<size_t>(item)] =
        eager_group(p, inputs, item / p.kv_heads, item % p.kv_heads);
  });
  Eager all;
  for (const Eager& group : groups) {
    for (auto tensor : {&Eager::o, &Eager::dq, &Eager::dk, &Eager::dv}) {
      (all.*tensor).insert((all.*tensor).end(), (group.*tensor).begin(), (group.*tensor).end());
    }
  }
  return all;
}

}  // namespace flashbench::verify
