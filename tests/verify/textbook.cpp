#include "textbook.h"

#include <cmath>
#include <limits>

#include "attention/half.h"

namespace flashbench::verify {

namespace {

long double load(const ConstTensorView& tensor, int64_t b, int64_t h, int64_t row, int64_t column) {
  return load_element(tensor.data, tensor.dtype, tensor.offset(b, h, row) + column);
}

long double dot(const ConstTensorView& x, int64_t x_head, int64_t x_row, const ConstTensorView& y,
                int64_t y_head, int64_t y_row, int64_t b) {
  long double sum = 0;
  for (int64_t column = 0; column < x.head_dim; ++column) {
    sum += load(x, b, x_head, x_row, column) * load(y, b, y_head, y_row, column);
  }
  return sum;
}

bool sees(const Problem& p, int64_t query, int64_t key) {
  const int64_t own = p.mask == Mask::causal_top_left ? query : query + p.kv_len - p.q_len;
  return (p.mask == Mask::none || key <= own) && (!p.window_left || key >= own - *p.window_left) &&
         (!p.window_right || key <= own + *p.window_right);
}

// `p` is request b.
void attend_row(Textbook& result, const Problem& p, const Inputs& in, int64_t b, int64_t h,
                int64_t row) {
  const int64_t kv_head = h / p.heads_per_kv_head();
  std::vector<long double> probability(static_cast<size_t>(p.kv_len), 0);
  long double sum = 0;
  for (int64_t key = 0; key < p.kv_len; ++key) {
    if (!sees(p, row, key)) continue;
    probability[static_cast<size_t>(key)] =
        std::exp(p.softmax_scale() * dot(in.q, h, row, in.k, kv_head, key, b));
    sum += probability[static_cast<size_t>(key)];
  }
  result.logsumexp.at(b, h, row, 0) = std::log(sum);
  if (sum == 0) return;

  for (long double& value : probability) value /= sum;
  for (int64_t key = 0; key < p.kv_len; ++key) {
    for (int64_t column = 0; column < p.value_dim(); ++column) {
      result.o.at(b, h, row, column) +=
          probability[static_cast<size_t>(key)] * load(in.v, b, kv_head, key, column);
    }
  }
  if (p.pass == Pass::forward) return;

  long double d = 0;
  for (int64_t column = 0; column < p.value_dim(); ++column) {
    d += load(in.d_o, b, h, row, column) * result.o.at(b, h, row, column);
  }
  for (int64_t key = 0; key < p.kv_len; ++key) {
    const long double weight = probability[static_cast<size_t>(key)];
    const long double d_s = weight * (dot(in.d_o, h, row, in.v, kv_head, key, b) - d);
    for (int64_t column = 0; column < p.head_dim; ++column) {
      result.dq.at(b, h, row, column) +=
          p.softmax_scale() * d_s * load(in.k, b, kv_head, key, column);
      result.dk.at(b, kv_head, key, column) +=
          p.softmax_scale() * d_s * load(in.q, b, h, row, column);
    }
    for (int64_t column = 0; column < p.value_dim(); ++column) {
      result.dv.at(b, kv_head, key, column) += weight * load(in.d_o, b, h, row, column);
    }
  }
}

}  // namespace

Textbook textbook_attention(const Problem& p, const Inputs& inputs) {
  Textbook result{Array(p.batch, p.q_heads, p.q_len, p.value_dim()),
                  Array(p.batch, p.q_heads, p.q_len, 1),
                  Array(p.batch, p.q_heads, p.q_len, p.head_dim),
                  Array(p.batch, p.kv_heads, p.kv_len, p.head_dim),
                  Array(p.batch, p.kv_heads, p.kv_len, p.value_dim())};
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      const Problem request = p.request(b);
      for (int64_t row = 0; row < request.q_len; ++row) {
        attend_row(result, request, inputs, b, h, row);
      }
    }
  }
  return result;
}

}  // namespace flashbench::verify
