// The tensors of one problem as every provider, kernel and oracle sees them.
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace flashbench {

// A tensor [batch, heads, length, head_dim] in memory; strides in elements, head_dim contiguous.
template <typename Data>
struct BasicTensorView {
  Data* data = nullptr;
  Dtype dtype = Dtype::fp32;
  int64_t batch = 0, heads = 0, length = 0, head_dim = 0;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;

  int64_t elements() const { return batch * heads * length * head_dim; }
  int64_t offset(int64_t b, int64_t h, int64_t row) const {
    return b * batch_stride + h * head_stride + row * row_stride;
  }

  operator BasicTensorView<const Data>() const {
    return {data, dtype, batch, heads, length, head_dim, batch_stride, head_stride, row_stride};
  }
};
using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

// A dense view over `data` in the given layout: bshd is [batch, length, heads, head_dim] in memory,
// bhsd is [batch, heads, length, head_dim].
template <typename Data>
BasicTensorView<Data> dense_view(Data* data, Dtype dtype, Layout layout, int64_t batch,
                                 int64_t heads, int64_t length, int64_t head_dim) {
  const bool bshd = layout == Layout::bshd;
  return {data,
          dtype,
          batch,
          heads,
          length,
          head_dim,
          heads * length * head_dim,
          bshd ? head_dim : length * head_dim,
          bshd ? heads * head_dim : head_dim};
}

// Dense views in a problem's dtype and layout, shaped like Q (and dQ), O (and dO), K (and dK) or V
// (and dV).
template <typename Data>
BasicTensorView<Data> query_view(Data* data, const Problem& p) {
  return dense_view(data, p.dtype, p.layout, p.batch, p.q_heads, p.q_len, p.head_dim);
}
template <typename Data>
BasicTensorView<Data> output_view(Data* data, const Problem& p) {
  return dense_view(data, p.dtype, p.layout, p.batch, p.q_heads, p.q_len, p.value_dim());
}
template <typename Data>
BasicTensorView<Data> key_view(Data* data, const Problem& p) {
  return dense_view(data, p.dtype, p.layout, p.batch, p.kv_heads, p.kv_len, p.head_dim);
}
template <typename Data>
BasicTensorView<Data> value_view(Data* data, const Problem& p) {
  return dense_view(data, p.dtype, p.layout, p.batch, p.kv_heads, p.kv_len, p.value_dim());
}

// What a provider reads. `o`, `d_o` and `logsumexp` are given for the backward pass only.
struct Inputs {
  ConstTensorView q, k, v;
  ConstTensorView o, d_o;
  const float* logsumexp = nullptr;  // [batch, q_heads, q_len], natural log of the row's sum
};

// What a provider writes: `o` and `logsumexp` forward; `dq`, `dk` and `dv` backward.
struct Outputs {
  TensorView o;
  float* logsumexp = nullptr;  // [batch, q_heads, q_len]; null: the provider gives none
  TensorView dq, dk, dv;
};

}  // namespace flashbench
