// Reads rows of a tensor of any dtype into fp32 scratch, writes them back, and transposes them.
#if defined(FLASHBENCH_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FLASHBENCH_KERNELS_CPU_ROWS_INL_H_
#undef FLASHBENCH_KERNELS_CPU_ROWS_INL_H_
#else
#define FLASHBENCH_KERNELS_CPU_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention/tensors.h"

HWY_BEFORE_NAMESPACE();
namespace flashbench::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The length of a row is a multiple of eight elements (kHeadDimStep), so that these vectors leave
// no tail.
using RowTag = hn::CappedTag<float, 8>;
using RowVector = hn::Vec<RowTag>;
using RowBitsTag = hn::RebindToUnsigned<RowTag>;
using RowBits = hn::Vec<RowBitsTag>;
using RowHalfTag = hn::Rebind<uint16_t, RowTag>;
constexpr size_t kRowLanes = HWY_MIN(HWY_LANES(float), size_t{8});

// Conversions of the two 16-bit formats on bit patterns, as in attention/half.h. Highway's
// conversions truncate bf16, and truncate fp16 on targets without an instruction for it.
template <typename D, typename Bits>
HWY_INLINE hn::Vec<D> fp16_to_float(D d, Bits bits) {
  const hn::RebindToUnsigned<D> du;
  const Bits sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const Bits magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu)));
  const hn::Vec<D> value = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f));
  const Bits special = hn::VecFromMask(du, hn::Gt(magnitude, hn::Set(du, (0x1fu << 23) - 1)));
  return hn::BitCast(
      d, hn::Or(hn::Or(hn::BitCast(du, value), sign), hn::And(special, hn::Set(du, 0x7f800000u))));
}

HWY_INLINE RowBits float_to_fp16(RowVector value) {
  const RowTag d;
  const RowBitsTag du;
  const RowBits bits = hn::BitCast(du, value);
  const RowBits magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const RowBits sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  const RowBits odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const RowBits normal = hn::ShiftRight<13>(
      hn::Add(hn::Add(magnitude, odd), hn::Set(du, 0xfffu - ((127u - 15u) << 23))));
  // Below 2^-14, adding 0.5 makes the fp32 adder round to multiples of 2^-24.
  const RowBits subnormal = hn::And(
      hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f))), hn::Set(du, 0x7fffu));
  const auto below = [&](uint32_t bound) HWY_ATTR { return hn::Lt(magnitude, hn::Set(du, bound)); };
  const RowBits overflow = hn::IfThenElse(below(0x7f800001u), hn::Set(du, 0x7c00u),
                                          hn::Set(du, 0x7e00u));  // infinity or NaN
  const RowBits finite = hn::IfThenElse(below(0x38800000u), subnormal, normal);
  return hn::Or(sign, hn::IfThenElse(below(0x477ff000u), finite, overflow));
}

template <typename D, typename Bits>
HWY_INLINE hn::Vec<D> bf16_to_float(D d, Bits bits) {
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

HWY_INLINE RowBits float_to_bf16(RowVector value) {
  const RowBitsTag du;
  const RowBits bits = hn::BitCast(du, value);
  const RowBits top = hn::ShiftRight<16>(bits);
  const RowBits odd = hn::And(top, hn::Set(du, 1u));
  const RowBits rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto is_nan = hn::Gt(hn::And(bits, hn::Set(du, 0x7fffffffu)), hn::Set(du, 0x7f800000u));
  return hn::IfThenElse(is_nan, hn::Or(top, hn::Set(du, 0x40u)), rounded);
}

// e4m3 without its factor. Its bits, moved to where fp32 has them, are 2^120 smaller; subnormal
// numbers too.
template <typename D, typename Bits>
HWY_INLINE hn::Vec<D> e4m3_to_float(D d, Bits bits) {
  const hn::RebindToUnsigned<D> du;
  const Bits sign = hn::ShiftLeft<24>(hn::And(bits, hn::Set(du, 0x80u)));
  const Bits magnitude = hn::And(bits, hn::Set(du, 0x7fu));
  const hn::Vec<D> value =
      hn::Mul(hn::BitCast(d, hn::ShiftLeft<20>(magnitude)), hn::Set(d, 0x1p120f));
  const Bits nan = hn::VecFromMask(du, hn::Eq(magnitude, hn::Set(du, 0x7fu)));
  return hn::BitCast(
      d, hn::Or(hn::Or(hn::BitCast(du, value), sign), hn::And(nan, hn::Set(du, 0x7fc00000u))));
}

// A byte for each lane of 32 bits.
template <typename D>
HWY_INLINE hn::Vec<D> load_bytes(D du, const uint8_t* from) {
  return hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint8_t, D>(), from));
}

// Calls row(index) with the index of the first element of every vector of a row.
template <typename Row>
HWY_INLINE void for_row(size_t columns, const Row& row) {
  for (size_t i = 0; i < columns; i += kRowLanes) row(i);
}

// Loads one row of `columns` elements, a multiple of 8.
HWY_INLINE void load_row(const void* from, Dtype dtype, size_t columns, float* HWY_RESTRICT to) {
  const RowTag d;
  const RowBitsTag du;
  const RowHalfTag dh;
  const auto* halves = static_cast<const uint16_t*>(from);
  switch (dtype) {
    case Dtype::fp32:
      return for_row(columns, [&](size_t i) HWY_ATTR {
        hn::StoreU(hn::LoadU(d, static_cast<const float*>(from) + i), d, to + i);
      });
    case Dtype::fp16:
      return for_row(columns, [&](size_t i) HWY_ATTR {
        hn::StoreU(fp16_to_float(d, hn::PromoteTo(du, hn::LoadU(dh, halves + i))), d, to + i);
      });
    case Dtype::bf16:
      return for_row(columns, [&](size_t i) HWY_ATTR {
        hn::StoreU(bf16_to_float(d, hn::PromoteTo(du, hn::LoadU(dh, halves + i))), d, to + i);
      });
    case Dtype::e4m3:
      return for_row(columns, [&](size_t i) HWY_ATTR {
        hn::StoreU(e4m3_to_float(d, load_bytes(du, static_cast<const uint8_t*>(from) + i)), d,
                   to + i);
      });
  }
}

// Stores one row of `columns` elements, a multiple of 8, each times `scale`.
HWY_INLINE void store_row(const float* HWY_RESTRICT from, float scale, Dtype dtype, size_t columns,
                          void* to) {
  const RowTag d;
  const RowHalfTag dh;
  auto* halves = static_cast<uint16_t*>(to);
  const auto load = [&](size_t i)
                        HWY_ATTR { return hn::Mul(hn::LoadU(d, from + i), hn::Set(d, scale)); };
  switch (dtype) {
    case Dtype::fp32:
      return for_row(
          columns, [&](size_t i) HWY_ATTR { hn::StoreU(load(i), d, static_cast<float*>(to) + i); });
    case Dtype::fp16:
      return for_row(columns, [&](size_t i) HWY_ATTR {
        hn::StoreU(hn::TruncateTo(dh, float_to_fp16(load(i))), dh, halves + i);
      });
    case Dtype::bf16:
      return for_row(columns, [&](size_t i) HWY_ATTR {
        hn::StoreU(hn::TruncateTo(dh, float_to_bf16(load(i))), dh, halves + i);
      });
    case Dtype::e4m3:
      break;
  }
}

HWY_INLINE float dot_row(const float* a, const float* b, size_t columns) {
  const RowTag d;
  RowVector sum = hn::Zero(d);
  for_row(columns, [&](size_t i) HWY_ATTR {
    sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Whether rows [first, end) of scratch, `stride` apart, hold neither Inf nor NaN.
HWY_INLINE bool all_finite(const float* from, size_t stride, size_t first, size_t end,
                           size_t columns) {
  const RowTag d;
  RowVector bits = hn::Zero(d);  // of x - x: 0, or NaN if x is Inf or NaN
  for (size_t row = first; row < end; ++row) {
    for_row(columns, [&](size_t i) HWY_ATTR {
      const RowVector x = hn::LoadU(d, from + row * stride + i);
      bits = hn::Or(bits, hn::Sub(x, x));
    });
  }
  return hn::AllTrue(d, hn::Eq(bits, hn::Zero(d)));
}

// The factor of the elements of a head of e4m3; 1 in other tensors. For tensors whose factor no row
// changes.
HWY_INLINE float factor_of_head(const ConstTensorView& t, int64_t b, int64_t h) {
  return t.descales.data == nullptr ? 1 : t.descales.at(b, h, 0);
}

HWY_INLINE const void* row_address(const ConstTensorView& t, int64_t b, int64_t h, int64_t row) {
  return static_cast<const char*>(t.data) + t.offset(b, h, row) * element_size(t.dtype);
}
HWY_INLINE void* row_address(const TensorView& t, int64_t b, int64_t h, int64_t row) {
  return static_cast<char*>(t.data) + t.offset(b, h, row) * element_size(t.dtype);
}

// Loads rows [first, first + rows) of one head; rows are `stride` floats apart in `to`.
HWY_INLINE void load_rows(const ConstTensorView& t, int64_t b, int64_t h, int64_t first,
                          size_t rows, float* to, size_t stride) {
  const int64_t row_bytes = t.row_stride * element_size(t.dtype);
  const int64_t end = first + static_cast<int64_t>(rows);
  while (first < end) {
    const auto* from = static_cast<const char*>(row_address(t, b, h, first));
    const int64_t run_end = std::min(end, t.end_of_run(first));
    for (; first < run_end; ++first, from += row_bytes, to += stride) {
      load_row(from, t.dtype, static_cast<size_t>(t.head_dim), to);
    }
  }
}

// The rows of a tensor that is not paged.
HWY_INLINE void store_rows(const float* from, size_t stride, float scale, size_t rows,
                           const TensorView& t, int64_t b, int64_t h, int64_t first) {
  auto* to = static_cast<char*>(row_address(t, b, h, first));
  const int64_t row_bytes = t.row_stride * element_size(t.dtype);
  for (size_t i = 0; i < rows; ++i, to += row_bytes) {
    store_row(from + i * stride, scale, t.dtype, static_cast<size_t>(t.head_dim), to);
  }
}

// Prefetches rows of a head's next tile from memory or the last-level cache into L2, one each step.
// There is time for a few cache lines between two blocks of a product, but not for all of them in
// one burst.
class RowPrefetcher {
 public:
  RowPrefetcher(const ConstTensorView& t, int64_t b, int64_t h, int64_t first, int64_t rows)
      : t_(t), b_(b), h_(h), row_(first), end_(first + std::max<int64_t>(rows, 0)) {
    if (row_ < end_) begin_run();
  }

  void step() {
    if (row_ == end_) return;
    for (int64_t byte = 0; byte < row_bytes_; byte += 64) {
      __builtin_prefetch(row_start_ + byte, 0, 2);
    }
    row_start_ += stride_;
    if (++row_ == run_end_ && row_ < end_) begin_run();
  }

 private:
  void begin_run() {
    row_start_ = static_cast<const char*>(row_address(t_, b_, h_, row_));
    run_end_ = t_.end_of_run(row_);
  }

  const ConstTensorView& t_;
  int64_t b_, h_, row_, end_, run_end_ = 0;
  int64_t stride_ = t_.row_stride * element_size(t_.dtype);
  int64_t row_bytes_ = t_.head_dim * element_size(t_.dtype);
  const char* row_start_ = nullptr;
};

// to[column, row] = from[row, column] * scale; rows are a multiple of 8.
HWY_INLINE void transpose(const float* HWY_RESTRICT from, size_t from_stride, size_t rows,
                          size_t columns, float scale, float* HWY_RESTRICT to, size_t to_stride) {
  const RowTag d;
  const hn::RebindToSigned<RowTag> di;
  const auto down_a_column =
      hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(from_stride)));
  for (size_t row = 0; row < rows; row += kRowLanes) {
    for (size_t column = 0; column < columns; ++column) {
      const float* top = from + row * from_stride + column;
      hn::StoreU(hn::Mul(hn::GatherIndex(d, top, down_a_column), hn::Set(d, scale)), d,
                 to + column * to_stride + row);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace flashbench::kernels
HWY_AFTER_NAMESPACE();

#endif  // include once per target
