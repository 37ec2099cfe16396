#include "providers/naive_steps.h"

#include <algorithm>
#include <vector>

#include "device/blas.h"
#include "kernels/naive/softmax.h"

namespace flashbench {

namespace {

// Work items per thread: enough to share the work evenly, few enough for large products.
constexpr int64_t kBlocksPerThread = 4;
constexpr int64_t kMinBlockRows = 64;

// Work items of these rows of a head each, of a batch of equal lengths or of one request.
int64_t block_rows(int64_t heads, int64_t length, int threads) {
  const int64_t most = std::max<int64_t>(length, 1);
  return std::clamp(heads * length / (kBlocksPerThread * threads), std::min(kMinBlockRows, most),
                    most);
}

// BLAS may round differently for another number of rows. A request's blocks do not depend on the
// rest of its batch, so that its bits do not either.
RowTiles row_blocks(int64_t batch, int64_t heads, int64_t length, const RequestRows* requests,
                    int threads) {
  if (requests == nullptr) {
    return RowTiles(batch, heads, length, block_rows(batch * heads, length, threads));
  }
  return RowTiles(*requests, heads, [=](int64_t own) { return block_rows(heads, own, threads); });
}

using blas::Transpose;

template <typename Float, typename View>
blas::Operand<Float> rows_of(const View& t, int64_t b, int64_t h, int64_t first) {
  return {static_cast<Float*>(t.data) + t.offset(b, h, first), t.row_stride};
}

void fill_zeros(blas::Operand<float> m, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) std::fill_n(m.data + row * m.stride, columns, 0.0f);
}

// An fp32 tensor of the shape of `t`, in which the rows of a head lie behind each other.
template <typename Data, typename View>
BasicTensorView<Data> head_by_head(const View& t, float* room) {
  if (t.ragged == nullptr) {
    return dense_view<Data>(room, Dtype::fp32, Layout::bhsd, t.batch, t.heads, t.length,
                            t.head_dim);
  }
  return {room,       Dtype::fp32, t.batch, t.heads,
          t.length,   t.head_dim,  0,       t.all_rows() * t.head_dim,
          t.head_dim, t.ragged};
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

NaiveSteps::NaiveSteps(const Problem& problem, ThreadPool& pool)
    : p_(problem),
      pool_(pool),
      queries_(row_blocks(p_.batch, p_.q_heads, p_.q_len,
                          p_.lengths ? &p_.lengths->queries() : nullptr, pool.threads())),
      keys_(row_blocks(p_.batch, p_.kv_heads, p_.kv_len, p_.lengths ? &p_.lengths->keys() : nullptr,
                       pool.threads())) {
  if (!p_.lengths) return;
  int64_t first = 0;
  for (int64_t b = 0; b < p_.batch; ++b) {
    first_scores_.push_back(first);
    first += scores(p_.request(b));
  }
}

int64_t NaiveSteps::scores(const Problem& p) {
  return p.sum_of_requests(
      [](const Problem& request) { return request.q_heads * request.q_len * request.kv_len; });
}

int64_t NaiveSteps::score_offset(const Problem& request, const RowTile& rows) const {
  const int64_t of_head = request.q_len * request.kv_len;
  const int64_t first = first_scores_.empty() ? rows.batch * request.q_heads * of_head
                                              : first_scores_[static_cast<size_t>(rows.batch)];
  return first + rows.head * of_head + rows.first * request.kv_len;
}

void NaiveSteps::for_rows(const RowTiles& tiles, const RowsBody& body) const {
  pool_.parallel_for(tiles.size(), [&](int64_t item, int) {
    const RowTile rows = tiles[item];
    body(p_.request(rows.batch), rows);
  });
}

void NaiveSteps::multiply_transposed(double alpha, ConstTensorView a, ConstTensorView b,
                                     float* scores) const {
  for_rows(queries_, [&](const Problem& request, const RowTile& at) {
    if (request.kv_len == 0) return;
    blas::gemm(Transpose::no, Transpose::yes, at.rows, request.kv_len, a.head_dim, alpha,
               rows_of<const float>(a, at.batch, at.head, at.first),
               rows_of<const float>(b, at.batch, at.head / p_.heads_per_kv_head(), 0), 0,
               {scores + score_offset(request, at), request.kv_len});
  });
}

void NaiveSteps::multiply(double alpha, const float* scores, ConstTensorView b,
                          TensorView c) const {
  for_rows(queries_, [&](const Problem& request, const RowTile& at) {
    const auto product = rows_of<float>(c, at.batch, at.head, at.first);
    if (request.kv_len == 0) return fill_zeros(product, at.rows, c.head_dim);
    const blas::Operand<const float> left{scores + score_offset(request, at), request.kv_len};
    const auto right = rows_of<const float>(b, at.batch, at.head / p_.heads_per_kv_head(), 0);
    blas::gemm(Transpose::no, Transpose::no, at.rows, c.head_dim, request.kv_len, alpha, left,
               right, 0, product);
    if (!p_.is_masked() || all_finite(product, at.rows, c.head_dim)) return;
    // A key that a row does not see must not affect it, but 0 * NaN is NaN. Compute the row again
    // from the keys that it sees.
    for (int64_t row = 0; row < at.rows; ++row) {
      const RowRange visible = request.visible_keys(at.first + row);
      blas::gemm(Transpose::no, Transpose::no, 1, c.head_dim, visible.size(), alpha,
                 {left.data + row * left.stride + visible.first, left.stride},
                 {right.data + visible.first * right.stride, right.stride}, 0,
                 {product.data + row * product.stride, product.stride});
    }
  });
}

void NaiveSteps::multiply_scores_transposed(double alpha, const float* scores, ConstTensorView b,
                                            TensorView c) const {
  for_rows(keys_, [&](const Problem& request, const RowTile& at) {
    const auto product = rows_of<float>(c, at.batch, at.head, at.first);
    if (request.q_len == 0) return fill_zeros(product, at.rows, c.head_dim);
    const int64_t first_head = at.head * p_.heads_per_kv_head();
    for (int64_t h = first_head; h < first_head + p_.heads_per_kv_head(); ++h) {
      blas::gemm(Transpose::yes, Transpose::no, at.rows, c.head_dim, request.q_len, alpha,
                 {scores + score_offset(request, {at.batch, h, 0, 0}) + at.first, request.kv_len},
                 rows_of<const float>(b, at.batch, h, 0), h == first_head ? 0 : 1, product);
    }
  });
}

void NaiveSteps::softmax(float* scores, float* logsumexp) const {
  for_rows(queries_, [&](const Problem& request, const RowTile& at) {
    kernels::naive_softmax(request, at.first, at.rows, scores + score_offset(request, at),
                           logsumexp + p_.query_index(at.batch, at.head, at.first));
  });
}

void NaiveSteps::softmax_gradient(const float* p, float* dp, const float* delta) const {
  for_rows(queries_, [&](const Problem& request, const RowTile& at) {
    const int64_t offset = score_offset(request, at);
    kernels::naive_softmax_gradient(request, at.first, at.rows, p + offset, dp + offset,
                                    delta + p_.query_index(at.batch, at.head, at.first));
  });
}

void NaiveSteps::row_dots(ConstTensorView o, ConstTensorView d_o, float* delta) const {
  for_rows(queries_, [&](const Problem&, const RowTile& at) {
    kernels::naive_row_dots(o, d_o, at.batch, at.head, at.first, at.rows,
                            delta + p_.query_index(at.batch, at.head, at.first));
  });
}

ConstTensorView NaiveSteps::queries_as_fp32(ConstTensorView t, float* room) const {
  return as_fp32(queries_, t, room);
}
ConstTensorView NaiveSteps::keys_as_fp32(ConstTensorView t, float* room) const {
  return as_fp32(keys_, t, room);
}
void NaiveSteps::queries_from_fp32(TensorView fp32, TensorView t) const {
  from_fp32(queries_, fp32, t);
}
void NaiveSteps::keys_from_fp32(TensorView fp32, TensorView t) const {
  from_fp32(keys_, fp32, t);
}

TensorView NaiveSteps::fp32_room(TensorView t, float* room) {
  return t.dtype == Dtype::fp32 ? t : head_by_head<void>(t, room);
}

ConstTensorView NaiveSteps::as_fp32(const RowTiles& tiles, ConstTensorView t, float* room) const {
  if (t.dtype == Dtype::fp32 && !t.is_paged()) return t;
  const auto copy = head_by_head<const void>(t, room);
  for_rows(tiles, [&](const Problem&, const RowTile& at) {
    kernels::naive_to_fp32(t, at.batch, at.head, at.first, at.rows,
                           room + copy.offset(at.batch, at.head, at.first));
  });
  return copy;
}

void NaiveSteps::from_fp32(const RowTiles& tiles, TensorView fp32, TensorView t) const {
  if (t.dtype == Dtype::fp32) return;  // written in place
  for_rows(tiles, [&](const Problem&, const RowTile& at) {
    kernels::naive_from_fp32(
        static_cast<const float*>(fp32.data) + fp32.offset(at.batch, at.head, at.first), t,
        at.batch, at.head, at.first, at.rows);
  });
}

}  // namespace flashbench
