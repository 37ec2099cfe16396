#include "providers/naive_steps.h"

#include <algorithm>

#include "device/blas.h"
#include "kernels/naive/softmax.h"

namespace flashbench {

namespace {

// Work items per thread: enough to share the work evenly, few enough for large products.
constexpr int64_t kBlocksPerThread = 4;
constexpr int64_t kMinBlockRows = 64;

using blas::Transpose;

template <typename Float, typename View>
blas::Operand<Float> rows_of(const View& t, int64_t b, int64_t h, int64_t first) {
  return {static_cast<Float*>(t.data) + t.offset(b, h, first), t.row_stride};
}

bool all_finite(blas::Operand<float> m, int64_t rows, int64_t columns) {
  float sum = 0;  // of x - x: 0, or NaN if any x is not finite
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const float x = m.data[row * m.stride + column];
      sum += x - x;
    }
  }
  return sum == 0;
}

}  // namespace

void NaiveSteps::for_rows(int64_t heads, int64_t length, const RowsBody& body) const {
  const int64_t all_heads = p_.batch * heads;
  const int64_t wanted = all_heads * length / (kBlocksPerThread * pool_.threads());
  const int64_t rows = std::clamp(wanted, std::min(kMinBlockRows, length), length);
  const int64_t blocks = (length + rows - 1) / rows;
  pool_.parallel_for(all_heads * blocks, [&](int64_t item, int) {
    const int64_t head = item / blocks, first = item % blocks * rows;
    body(head / heads, head % heads, first, std::min(rows, length - first));
  });
}

void NaiveSteps::multiply_transposed(double alpha, ConstTensorView a, ConstTensorView b,
                                     float* scores) const {
  for_rows(p_.q_heads, p_.q_len, [&](int64_t batch, int64_t h, int64_t first, int64_t rows) {
    blas::gemm(Transpose::no, Transpose::yes, rows, p_.kv_len, a.head_dim, alpha,
               rows_of<const float>(a, batch, h, first),
               rows_of<const float>(b, batch, h / p_.heads_per_kv_head(), 0), 0,
               {scores + score_offset(batch, h) + first * p_.kv_len, p_.kv_len});
  });
}

void NaiveSteps::multiply(double alpha, const float* scores, ConstTensorView b,
                          TensorView c) const {
  for_rows(p_.q_heads, p_.q_len, [&](int64_t batch, int64_t h, int64_t first, int64_t rows) {
    const blas::Operand<const float> left{scores + score_offset(batch, h) + first * p_.kv_len,
                                          p_.kv_len};
    const auto right = rows_of<const float>(b, batch, h / p_.heads_per_kv_head(), 0);
    const auto product = rows_of<float>(c, batch, h, first);
    blas::gemm(Transpose::no, Transpose::no, rows, c.head_dim, p_.kv_len, alpha, left, right, 0,
               product);
    if (!p_.is_masked() || all_finite(product, rows, c.head_dim)) return;
    // A key that a row does not see must not affect it, but 0 * NaN is NaN. Compute the row again
    // from the keys that it sees.
    for (int64_t row = 0; row < rows; ++row) {
      const RowRange visible = p_.visible_keys(first + row);
      blas::gemm(Transpose::no, Transpose::no, 1, c.head_dim, visible.size(), alpha,
                 {left.data + row * left.stride + visible.first, left.stride},
                 {right.data + visible.first * right.stride, right.stride}, 0,
                 {product.data + row * product.stride, product.stride});
    }
  });
}

void NaiveSteps::multiply_scores_transposed(double alpha, const float* scores, ConstTensorView b,
                                            TensorView c) const {
  for_rows(p_.kv_heads, p_.kv_len,
           [&](int64_t batch, int64_t kv_head, int64_t first, int64_t rows) {
             const int64_t first_head = kv_head * p_.heads_per_kv_head();
             for (int64_t h = first_head; h < first_head + p_.heads_per_kv_head(); ++h) {
               blas::gemm(Transpose::yes, Transpose::no, rows, c.head_dim, p_.q_len, alpha,
                          {scores + score_offset(batch, h) + first, p_.kv_len},
                          rows_of<const float>(b, batch, h, 0), h == first_head ? 0 : 1,
                          rows_of<float>(c, batch, kv_head, first));
             }
           });
}

void NaiveSteps::softmax(float* scores, float* logsumexp) const {
  for_rows(p_.q_heads, p_.q_len, [&](int64_t b, int64_t h, int64_t first, int64_t rows) {
    kernels::naive_softmax(p_, first, rows, scores + score_offset(b, h) + first * p_.kv_len,
                           logsumexp + (b * p_.q_heads + h) * p_.q_len + first);
  });
}

void NaiveSteps::softmax_gradient(const float* p, float* dp, const float* delta) const {
  for_rows(p_.q_heads, p_.q_len, [&](int64_t b, int64_t h, int64_t first, int64_t rows) {
    const int64_t at = score_offset(b, h) + first * p_.kv_len;
    kernels::naive_softmax_gradient(p_, first, rows, p + at, dp + at,
                                    delta + (b * p_.q_heads + h) * p_.q_len + first);
  });
}

void NaiveSteps::row_dots(ConstTensorView o, ConstTensorView d_o, float* delta) const {
  for_rows(p_.q_heads, p_.q_len, [&](int64_t b, int64_t h, int64_t first, int64_t rows) {
    kernels::naive_row_dots(o, d_o, b, h, first, rows,
                            delta + (b * p_.q_heads + h) * p_.q_len + first);
  });
}

ConstTensorView NaiveSteps::as_fp32(ConstTensorView t, float* room) const {
  if (t.dtype == Dtype::fp32) return t;
  const auto copy = dense_view<const void>(room, Dtype::fp32, Layout::bhsd, t.batch, t.heads,
                                           t.length, t.head_dim);
  for_rows(t.heads, t.length, [&](int64_t b, int64_t h, int64_t first, int64_t rows) {
    kernels::naive_to_fp32(t, b, h, first, rows, room + copy.offset(b, h, first));
  });
  return copy;
}

TensorView NaiveSteps::fp32_room(TensorView t, float* room) {
  if (t.dtype == Dtype::fp32) return t;
  return dense_view<void>(room, Dtype::fp32, Layout::bhsd, t.batch, t.heads, t.length, t.head_dim);
}

void NaiveSteps::from_fp32(TensorView fp32, TensorView t) const {
  if (t.dtype == Dtype::fp32) return;  // written in place
  for_rows(t.heads, t.length, [&](int64_t b, int64_t h, int64_t first, int64_t rows) {
    kernels::naive_from_fp32(static_cast<const float*>(fp32.data) + fp32.offset(b, h, first), t, b,
                             h, first, rows);
  });
}

}  // namespace flashbench
