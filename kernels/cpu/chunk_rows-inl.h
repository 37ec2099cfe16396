// The rows of K and V that attention of a few queries reads (chunks-inl.h): where those of a tile
// of keys lie, how they get into vectors, and where the sums of products with them go. Highway
// includes this file once per target.
#if defined(FLASHBENCH_KERNELS_CPU_CHUNK_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FLASHBENCH_KERNELS_CPU_CHUNK_ROWS_INL_H_
#undef FLASHBENCH_KERNELS_CPU_CHUNK_ROWS_INL_H_
#else
#define FLASHBENCH_KERNELS_CPU_CHUNK_ROWS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flashbench::kernels {
namespace HWY_NAMESPACE {

// Queries, and keys or vectors of V, of a block that stays in registers: 16 of 32 vector registers
// are accumulators, or 8 of 16.
#if HWY_CAP_GE512 || HWY_ARCH_ARM
constexpr size_t kBlockQueries = 4;
#else
constexpr size_t kBlockQueries = 2;
#endif
constexpr size_t kBlockKeys = 4;
constexpr size_t kBlockVectors = 4;

// Keys of V between two prefetches.
constexpr size_t kPrefetchKeys = 8;

constexpr size_t kTileKeys = kChunkTile;

// Where the rows of a tile lie: each `offset` bytes behind its address, so that the heads of a row
// can share it. Behind the last row, up to a whole block, its address stands again.
struct TileRows {
  std::array<const char*, kTileKeys> address;
  size_t count;
  int64_t offset = 0;

  const void* operator[](size_t row) const { return address[row] + offset; }
};

// Rows [first, first + count) of a head.
HWY_INLINE void point_to_rows(const ConstTensorView& t, int64_t b, int64_t h, int64_t first,
                              size_t count, TileRows& to) {
  const int64_t row_bytes = t.row_stride * element_size(t.dtype);
  const int64_t end = first + static_cast<int64_t>(count);
  size_t i = 0;
  while (first < end) {
    const auto* from = static_cast<const char*>(row_address(t, b, h, first));
    const int64_t run_end = std::min(end, t.end_of_run(first));
    for (; first < run_end; ++first, from += row_bytes) to.address[i++] = from;
  }
  to.count = count;
  for (; i % kBlockKeys != 0; ++i) to.address[i] = to.address[count - 1];
}

// Prefetches the next tile into all caches, some heads' rows at a time, and the heads of a row one
// after the other. Of a row of an odd number of cache lines one more is asked for, which mostly is
// the next row's.
class TilePrefetcher {
 public:
  TilePrefetcher(const ConstTensorView& t, int64_t heads, const TileRows& rows)
      : rows_(rows),
        row_bytes_(t.head_dim * element_size(t.dtype)),
        head_stride_(t.head_stride * element_size(t.dtype)),
        end_offset_(heads * head_stride_) {}

  HWY_INLINE void step(size_t count) {
    for (; count > 0 && row_ < rows_.count; --count) {
      const char* at = rows_.address[row_] + offset_;
      for (const char* const end = at + row_bytes_; at < end; at += 2 * kLineBytes) {
        __builtin_prefetch(at);
        __builtin_prefetch(at + kLineBytes);
      }
      offset_ += head_stride_;
      if (offset_ == end_offset_) {
        offset_ = 0;
        ++row_;
      }
    }
  }

 private:
  static constexpr int64_t kLineBytes = 64;

  const TileRows& rows_;
  int64_t row_bytes_, head_stride_, end_offset_;
  size_t row_ = 0;
  int64_t offset_ = 0;  // of the next head in the row
};

template <Dtype kDtype>
HWY_INLINE Vector load_vector(const void* row, size_t column) {
  const FloatTag d;
  if constexpr (kDtype == Dtype::fp32) {
    return hn::LoadU(d, static_cast<const float*>(row) + column);
  } else if constexpr (kDtype == Dtype::e4m3) {
    const hn::RebindToUnsigned<FloatTag> du;
    return e4m3_to_float(d, load_bytes(du, static_cast<const uint8_t*>(row) + column));
  } else if constexpr (kDtype == Dtype::fp16 && HWY_CAP_GE256) {
    // An instruction of AVX2. Highway's code without one takes infinities and NaN for numbers.
    const hn::Rebind<hwy::float16_t, FloatTag> dh;
    return hn::PromoteTo(d, hn::LoadU(dh, static_cast<const hwy::float16_t*>(row) + column));
  } else {
    const hn::Rebind<uint16_t, FloatTag> dh;
    const hn::RebindToUnsigned<FloatTag> du;
    const auto bits = hn::PromoteTo(du, hn::LoadU(dh, static_cast<const uint16_t*>(row) + column));
    return kDtype == Dtype::fp16 ? fp16_to_float(d, bits) : bf16_to_float(d, bits);
  }
}

// Whether rows of K and V are read as pairs: bf16 in whole pairs of vectors.
HWY_INLINE bool reads_pairs(const Problem& p, Dtype dtype) {
  constexpr auto kPair = static_cast<int64_t>(2 * kLanes);
  return kLanes > 1 && dtype == Dtype::bf16 && p.head_dim % kPair == 0 &&
         p.value_dim() % kPair == 0;
}

// The order of columns in which pairs are read: of each two vectors, the even ones, then the odd.
HWY_INLINE void split_pairs(float* row, size_t columns) {
  const FloatTag d;
  for (const float* end = row + columns; row < end; row += 2 * kLanes) {
    Vector even, odd;
    hn::LoadInterleaved2(d, row, even, odd);
    hn::StoreU(even, d, row);
    hn::StoreU(odd, d, row + kLanes);
  }
}
HWY_INLINE void join_pairs(float* row, size_t columns) {
  const FloatTag d;
  for (const float* end = row + columns; row < end; row += 2 * kLanes) {
    const Vector even = hn::LoadU(d, row), odd = hn::LoadU(d, row + kLanes);
    hn::StoreInterleaved2(even, odd, d, row);
  }
}

// Vector `number` of a row, from `column` on. If `kPaired`, in the order of split_pairs: a bf16 is
// the upper half of a float, so that a shift and a mask give both of a pair.
template <Dtype kDtype, bool kPaired>
HWY_INLINE Vector load_vector(const void* row, size_t column, size_t number) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kPaired) {
    const FloatTag d;
    const hn::RebindToUnsigned<FloatTag> du;
    const hn::Repartition<uint16_t, FloatTag> dh;
    const auto* at = static_cast<const uint16_t*>(row) + column + number / 2 * 2 * kLanes;
    const auto pairs = hn::BitCast(du, hn::LoadU(dh, at));
    return hn::BitCast(
        d, number % 2 == 0 ? hn::ShiftLeft<16>(pairs) : hn::And(pairs, hn::Set(du, 0xffff0000u)));
  }
#endif
  return load_vector<kDtype>(row, column + number * kLanes);
}

#if HWY_TARGET != HWY_SCALAR
// Stores the sum of all blocks of four lanes.
template <typename D>
HWY_INLINE void store_sum_of_blocks(D d, hn::Vec<D> blocks, float* HWY_RESTRICT to) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(blocks, d, to);
  } else {
    const hn::Half<D> half;
    store_sum_of_blocks(half, hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks)),
                        to);
  }
}

// Of each block of four lanes: the sums of four vectors.
HWY_INLINE Vector sums_in_blocks(const Vector* sums) {
  const FloatTag d;
  const hn::Repartition<double, FloatTag> d2;
  // Of each block of four lanes: a0 + a2, b0 + b2, a1 + a3, b1 + b3.
  const auto pair = [d, d2](Vector a, Vector b) HWY_ATTR {
    return hn::BitCast(d2, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto ab = pair(sums[0], sums[1]), cd = pair(sums[2], sums[3]);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(d2, ab, cd)),
                 hn::BitCast(d, hn::InterleaveUpper(d2, ab, cd)));
}
#endif

// Stores the sum of the lanes of each of four vectors.
HWY_INLINE void store_sums(const Vector* sums, float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < 4; ++i) to[i] = hn::GetLane(sums[i]);
#else
  store_sum_of_blocks(FloatTag(), sums_in_blocks(sums), to);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace flashbench::kernels
HWY_AFTER_NAMESPACE();

#endif  // include once per target
