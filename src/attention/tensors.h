// The tensors of one problem as every provider, kernel and oracle sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "attention/problem.h"

namespace flashbench {

// Fills memory until it is written: a NaN in every dtype.
inline constexpr unsigned char kPoisonByte = 0xff;

// The factors of an e4m3 tensor: an element of row `row` means its value times at(b, h, row). They
// lie [batch, heads, ceil(length / kDescaleRows)], without the dimensions that share one (Descale,
// Problem::kv_dtype): their stride is 0.
struct Descales {
  const float* data = nullptr;  // in the memory that the tensor is in; null: it has none
  int64_t batch_stride = 0, head_stride = 0, block_stride = 0;

  float at(int64_t b, int64_t h, int64_t row) const {
    return data[b * batch_stride + h * head_stride + row / kDescaleRows * block_stride];
  }
};

// Of a tensor with so many heads, which has so many factors.
inline Descales descales_view(const float* data, const Problem& p, int64_t heads, int64_t count) {
  if (count == 0) return {};
  const int64_t of_batch = p.kv_dtype ? 0 : count / p.batch;
  switch (p.descale) {
    case Descale::per_head:
      return {data, of_batch, 1, 0};
    case Descale::per_tensor:
      return {data, 0, 0, 0};
    case Descale::per_block:
      return {data, of_batch, of_batch / heads, 1};
  }
  throw std::logic_error("no such descale");
}

// Of Q, and of K or V.
inline Descales query_descales_view(const float* data, const Problem& p) {
  return descales_view(data, p, p.q_heads, p.query_descales());
}
inline Descales key_descales_view(const float* data, const Problem& p) {
  return descales_view(data, p, p.kv_heads, p.key_descales());
}

// A tensor [batch, heads, length, head_dim] in memory; strides in elements, head_dim contiguous. Or
// a ragged one, in which request b has its own number of rows, behind those of request b - 1;
// `length` is then that of the longest, and the batch has no stride. Or a paged one, in which the
// block table says where the rows of a request are; the batch stride is then that of a page, and
// the other numbers are of the requests' rows.
template <typename Data>
struct BasicTensorView {
  Data* data = nullptr;
  Dtype dtype = Dtype::fp32;
  int64_t batch = 0, heads = 0, length = 0, head_dim = 0;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  const RequestRows* ragged = nullptr;  // the problem's

  // Page `number` of request b is entry b * stride + number of the table, and has `size` rows.
  struct Pages {
    const int32_t* table = nullptr;  // in the memory that the data are in
    int64_t stride = 0, size = 0;
  };
  Pages pages = {};
  Descales descales = {};
  bool is_paged() const { return pages.size != 0; }

  // Rows of a head in memory: of request b, and of all.
  int64_t rows(int64_t b) const { return ragged == nullptr ? length : ragged->count(b); }
  int64_t all_rows() const { return ragged == nullptr ? batch * length : ragged->total(); }

  int64_t elements() const { return heads * all_rows() * head_dim; }
  int64_t offset(int64_t b, int64_t h, int64_t row) const {
    if (is_paged()) {
      const int64_t page = pages.table[b * pages.stride + row / pages.size];
      return page * batch_stride + h * head_stride + row % pages.size * row_stride;
    }
    const int64_t first = ragged == nullptr ? b * batch_stride : ragged->first(b) * row_stride;
    return first + h * head_stride + row * row_stride;
  }

  // Rows [row, end of the run) of a request lie row_stride apart.
  int64_t end_of_run(int64_t row) const {
    return is_paged() ? (row / pages.size + 1) * pages.size : length;
  }

  operator BasicTensorView<const Data>() const {
    return {data,
            dtype,
            batch,
            heads,
            length,
            head_dim,
            batch_stride,
            head_stride,
            row_stride,
            ragged,
            {pages.table, pages.stride, pages.size},
            descales};
  }
};
using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

// Request b of a tensor by itself, which has `rows` rows: as many as a ragged tensor says; a padded
// one has more, up to the longest.
template <typename Data>
BasicTensorView<Data> request_view(const BasicTensorView<Data>& t, int64_t b, int64_t rows) {
  if (t.is_paged()) {
    BasicTensorView<Data> one = t;
    one.batch = 1;
    one.length = rows;
    one.ragged = nullptr;
    one.pages.table += b * t.pages.stride;
    return one;
  }
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  Data* const data = t.data == nullptr
                         ? nullptr
                         : static_cast<Byte*>(t.data) + t.offset(b, 0, 0) * element_size(t.dtype);
  const int64_t batch_stride = rows * t.row_stride;
  BasicTensorView<Data> one{data,         t.dtype,       1,           t.heads, rows, t.head_dim,
                            batch_stride, t.head_stride, t.row_stride};
  one.descales = t.descales;
  if (one.descales.data != nullptr) one.descales.data += b * t.descales.batch_stride;
  return one;
}

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

// A dense view [tokens, heads, head_dim] over the rows of all requests.
template <typename Data>
BasicTensorView<Data> ragged_view(Data* data, Dtype dtype, const RequestRows& rows, int64_t heads,
                                  int64_t head_dim) {
  return {data, dtype,    rows.requests(),  heads, rows.longest(), head_dim,
          0,    head_dim, heads * head_dim, &rows};
}

// Dense views in a problem's dtype (of O, its output_dtype; of K and V, its key_dtype) and layout,
// shaped like Q (and dQ), O (and dO), K (and dK) or V (and dV); without the factors of e4m3. A
// ragged view must not outlive the problem and its copies. Of a paged K or V it is the pool: each
// page stands where a request does elsewhere.
template <typename Data>
BasicTensorView<Data> query_side_view(Data* data, const Problem& p, Dtype dtype, int64_t head_dim) {
  if (p.is_ragged()) return ragged_view(data, dtype, p.lengths->queries(), p.q_heads, head_dim);
  return dense_view(data, dtype, p.layout, p.batch, p.q_heads, p.q_len, head_dim);
}
template <typename Data>
BasicTensorView<Data> key_side_view(Data* data, const Problem& p, int64_t head_dim) {
  if (p.is_paged()) {
    return dense_view(data, p.key_dtype(), p.key_layout(), p.pool_pages(), p.kv_heads, *p.page_size,
                      head_dim);
  }
  if (p.is_ragged()) {
    return ragged_view(data, p.key_dtype(), p.lengths->keys(), p.kv_heads, head_dim);
  }
  return dense_view(data, p.key_dtype(), p.layout, p.batch, p.kv_heads, p.kv_len, head_dim);
}
template <typename Data>
BasicTensorView<Data> query_view(Data* data, const Problem& p) {
  return query_side_view(data, p, p.dtype, p.head_dim);
}
template <typename Data>
BasicTensorView<Data> output_view(Data* data, const Problem& p, Dtype dtype) {
  return query_side_view(data, p, dtype, p.value_dim());
}
template <typename Data>
BasicTensorView<Data> output_view(Data* data, const Problem& p) {
  return output_view(data, p, p.output_dtype());
}
template <typename Data>
BasicTensorView<Data> key_view(Data* data, const Problem& p) {
  return key_side_view(data, p, p.head_dim);
}
template <typename Data>
BasicTensorView<Data> value_view(Data* data, const Problem& p) {
  return key_side_view(data, p, p.value_dim());
}

// The keys or values of the requests in this pool; `table` has rows of `stride` entries.
template <typename Data>
BasicTensorView<Data> paged_view(BasicTensorView<Data> pool, const Problem& p, const int32_t* table,
                                 int64_t stride) {
  pool.batch = p.batch;
  pool.length = p.kv_len;
  if (p.lengths) pool.ragged = &p.lengths->keys();
  pool.pages = {table, stride, *p.page_size};
  return pool;
}

// A view over a logsumexp, with one column: row i of a head is at Problem::query_index.
template <typename Data>
BasicTensorView<Data> logsumexp_view(Data* data, const Problem& p) {
  if (!p.is_ragged()) {
    return dense_view(data, Dtype::fp32, Layout::bhsd, p.batch, p.q_heads, p.q_len, 1);
  }
  const RequestRows& rows = p.lengths->queries();
  return {data, Dtype::fp32, p.batch, p.q_heads, rows.longest(), 1, 0, rows.total(), 1, &rows};
}

// How a provider stores O (Provider::output_dtype); of e4m3 with one factor.
struct OutputFormat {
  Dtype dtype = Dtype::fp32;
  float descale = 1;

  bool operator==(const OutputFormat&) const = default;
};

// What a provider reads. `o`, `d_o` and `logsumexp` are given for the backward pass only.
struct Inputs {
  ConstTensorView q = {}, k = {}, v = {};
  ConstTensorView o = {}, d_o = {};
  const float* logsumexp = nullptr;  // natural log of the row's sum, at Problem::query_index
};

// What a provider writes: `o` and `logsumexp` forward; `dq`, `dk` and `dv` backward. An `o` of e4m3
// has a factor, which is given: each byte means its value times that.
struct Outputs {
  TensorView o = {};
  float* logsumexp = nullptr;  // at Problem::query_index; null: the provider gives none
  TensorView dq = {}, dk = {}, dv = {};
};

// The tensors of request b by itself. Its logsumexp starts there, but the step from head to head
// stays that of the whole (logsumexp_view).
inline Inputs request_inputs(const Problem& p, const Inputs& in, int64_t b) {
  const int64_t queries = p.q_len_of(b), keys = p.kv_len_of(b);
  return {request_view(in.q, b, queries),
          request_view(in.k, b, keys),
          request_view(in.v, b, keys),
          request_view(in.o, b, queries),
          request_view(in.d_o, b, queries),
          in.logsumexp == nullptr ? nullptr : in.logsumexp + p.query_index(b, 0, 0)};
}
inline Outputs request_outputs(const Problem& p, const Outputs& out, int64_t b) {
  const int64_t queries = p.q_len_of(b), keys = p.kv_len_of(b);
  return {request_view(out.o, b, queries),
          out.logsumexp == nullptr ? nullptr : out.logsumexp + p.query_index(b, 0, 0),
          request_view(out.dq, b, queries), request_view(out.dk, b, keys),
          request_view(out.dv, b, keys)};
}

}  // namespace flashbench
