#include "kernels/naive/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/naive/softmax.cpp"
#include "kernels/cpu/targets.h"  // before Highway

#include <hwy/foreach_target.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flashbench::kernels {
namespace HWY_NAMESPACE {

// Calls body(first index, lanes) for every vector of [0, columns). The last vector may be partial.
template <typename Body>
HWY_INLINE void for_vectors(int64_t columns, const Body& body) {
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  int64_t i = 0;
  for (; i + kStep <= columns; i += kStep) body(i, kLanes);
  if (i < columns) body(i, static_cast<size_t>(columns - i));
}

// Loads and stores `lanes` lanes; the remaining lanes are `filler`.
HWY_INLINE Vector load_lanes(const float* from, size_t lanes, float filler) {
  const FloatTag d;
  if (lanes == kLanes) return hn::LoadU(d, from);
  HWY_ALIGN std::array<float, kLanes> all;
  all.fill(filler);
  std::copy_n(from, lanes, all.begin());
  return hn::Load(d, all.data());
}
HWY_INLINE void store_lanes(Vector v, float* to, size_t lanes) {
  const FloatTag d;
  if (lanes == kLanes) return hn::StoreU(v, d, to);
  HWY_ALIGN std::array<float, kLanes> all;
  hn::Store(v, d, all.data());
  std::copy_n(all.begin(), lanes, to);
}

// Columns that are not visible become 0.
HWY_INLINE void hide(float* row, RowRange visible, int64_t columns) {
  std::fill(row, row + visible.first, 0.0f);
  std::fill(row + visible.end, row + columns, 0.0f);
}

// Returns the logsumexp of the visible scores.
HWY_INLINE float softmax_row(float* HWY_RESTRICT row, int64_t visible) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const FloatTag d;
  if (visible == 0) return -kInfinity;

  Vector maxima = hn::Set(d, -kInfinity);
  for_vectors(visible, [&](int64_t i, size_t lanes) HWY_ATTR {
    maxima = hn::Max(maxima, load_lanes(row + i, lanes, -kInfinity));
  });
  const Vector maximum = hn::MaxOfLanes(d, maxima);
  Vector sums = hn::Zero(d);
  for_vectors(visible, [&](int64_t i, size_t lanes) HWY_ATTR {
    const Vector p = exp2(hn::Sub(load_lanes(row + i, lanes, -kInfinity), maximum));
    sums = hn::Add(sums, p);
    store_lanes(p, row + i, lanes);
  });
  const float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  const Vector inverse = hn::Set(d, 1.0f / sum);
  for_vectors(visible, [&](int64_t i, size_t lanes) HWY_ATTR {
    store_lanes(hn::Mul(load_lanes(row + i, lanes, 0.0f), inverse), row + i, lanes);
  });
  return (hn::GetLane(maximum) + std::log2(sum)) * std::numbers::ln2_v<float>;
}

void softmax(const Problem& p, int64_t first, int64_t rows, float* scores, float* logsumexp) {
  for (int64_t row = 0; row < rows; ++row) {
    float* const row_scores = scores + row * p.kv_len;
    const RowRange visible = p.visible_keys(first + row);
    hide(row_scores, visible, p.kv_len);
    logsumexp[row] = softmax_row(row_scores + visible.first, visible.size());
  }
}

// Masked elements are set to 0. Multiplying by P = 0 would not do: D or dP may be NaN.
void softmax_gradient(const Problem& problem, int64_t first, int64_t rows,
                      const float* HWY_RESTRICT p, float* HWY_RESTRICT dp, const float* delta) {
  const FloatTag d;
  for (int64_t row = 0; row < rows; ++row) {
    const Vector row_delta = hn::Set(d, delta[row]);
    const RowRange visible = problem.visible_keys(first + row);
    const int64_t at = row * problem.kv_len + visible.first;
    for_vectors(visible.size(), [&](int64_t i, size_t lanes) HWY_ATTR {
      const Vector difference = hn::Sub(load_lanes(dp + at + i, lanes, 0.0f), row_delta);
      store_lanes(hn::Mul(load_lanes(p + at + i, lanes, 0.0f), difference), dp + at + i, lanes);
    });
    hide(dp + row * problem.kv_len, visible, problem.kv_len);
  }
}

void row_dots(const ConstTensorView& o, const ConstTensorView& d_o, int64_t b, int64_t h,
              int64_t first, int64_t rows, float* delta) {
  HWY_ALIGN std::array<float, kMaxHeadDim> o_row, d_o_row;
  for (int64_t row = 0; row < rows; ++row) {
    load_rows(o, b, h, first + row, 1, o_row.data(), 0);
    load_rows(d_o, b, h, first + row, 1, d_o_row.data(), 0);
    delta[row] = dot_row(o_row.data(), d_o_row.data(), static_cast<size_t>(o.head_dim));
  }
}

void to_fp32(const ConstTensorView& from, int64_t b, int64_t h, int64_t first, int64_t rows,
             float* to) {
  load_rows(from, b, h, first, static_cast<size_t>(rows), to, static_cast<size_t>(from.head_dim));
  if (from.descales.data == nullptr) return;
  const float factor = factor_of_head(from, b, h);
  std::transform(to, to + rows * from.head_dim, to, [=](float x) { return x * factor; });
}

void from_fp32(const float* from, const TensorView& to, int64_t b, int64_t h, int64_t first,
               int64_t rows) {
  store_rows(from, static_cast<size_t>(to.head_dim), 1.0f, static_cast<size_t>(rows), to, b, h,
             first);
}

}  // namespace HWY_NAMESPACE
}  // namespace flashbench::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flashbench::kernels {

HWY_EXPORT(softmax);
HWY_EXPORT(softmax_gradient);
HWY_EXPORT(row_dots);
HWY_EXPORT(to_fp32);
HWY_EXPORT(from_fp32);

void naive_softmax(const Problem& p, int64_t first, int64_t rows, float* scores, float* logsumexp) {
  HWY_DYNAMIC_DISPATCH(softmax)(p, first, rows, scores, logsumexp);
}

void naive_softmax_gradient(const Problem& problem, int64_t first, int64_t rows, const float* p,
                            float* dp, const float* delta) {
  HWY_DYNAMIC_DISPATCH(softmax_gradient)(problem, first, rows, p, dp, delta);
}

void naive_row_dots(const ConstTensorView& o, const ConstTensorView& d_o, int64_t b, int64_t h,
                    int64_t first, int64_t rows, float* delta) {
  HWY_DYNAMIC_DISPATCH(row_dots)(o, d_o, b, h, first, rows, delta);
}

void naive_to_fp32(const ConstTensorView& from, int64_t b, int64_t h, int64_t first, int64_t rows,
                   float* to) {
  HWY_DYNAMIC_DISPATCH(to_fp32)(from, b, h, first, rows, to);
}

void naive_from_fp32(const float* from, const TensorView& to, int64_t b, int64_t h, int64_t first,
                     int64_t rows) {
  HWY_DYNAMIC_DISPATCH(from_fp32)(from, to, b, h, first, rows);
}

}  // namespace flashbench::kernels
#endif
