// Attention of a few queries: a chunk of keys at a time, for all queries that share a K/V head.
// Each row of K and V is read once, converted in registers, and multiplied by every query, so that
// memory sets the pace. Memory is fastest from front to back, and the heads of a row may lie beside
// each other, so a tile of keys is computed for one head after the other while the next tile is
// prefetched row by row, a few rows before each block of products: a core has room for some twenty
// cache lines on their way, and waits when they are asked for in one burst. Highway includes this
// file once per target.
#if defined(FLASHBENCH_KERNELS_CPU_CHUNKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FLASHBENCH_KERNELS_CPU_CHUNKS_INL_H_
#undef FLASHBENCH_KERNELS_CPU_CHUNKS_INL_H_
#else
#define FLASHBENCH_KERNELS_CPU_CHUNKS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <limits>
#include <numbers>

#include "kernels/cpu/forward_work.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/tiles.h"

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

// The score of a key that a query does not see.
constexpr float kHidden = -std::numeric_limits<float>::infinity();

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

// Prefetches the next tile from memory or the last-level cache into L2, some heads' rows at a time,
// and the heads of a row one after the other. Of a row of an odd number of cache lines one more is
// asked for, which mostly is the next row's.
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
        __builtin_prefetch(at, 0, 2);
        __builtin_prefetch(at + kLineBytes, 0, 2);
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
#endif

// Stores the sum of the lanes of each of four vectors.
HWY_INLINE void store_sums(const Vector* sums, float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < 4; ++i) to[i] = hn::GetLane(sums[i]);
#else
  const FloatTag d;
  const hn::Repartition<double, FloatTag> d2;
  // Of each block of four lanes: a0 + a2, b0 + b2, a1 + a3, b1 + b3.
  const auto pair = [d, d2](Vector a, Vector b) HWY_ATTR {
    return hn::BitCast(d2, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto ab = pair(sums[0], sums[1]), cd = pair(sums[2], sums[3]);
  store_sum_of_blocks(d,
                      hn::Add(hn::BitCast(d, hn::InterleaveLower(d2, ab, cd)),
                              hn::BitCast(d, hn::InterleaveUpper(d2, ab, cd))),
                      to);
#endif
}

// Scores of kQueries queries, kRowStride apart, and the block of keys from `first` on.
template <Dtype kDtype, bool kPaired, size_t kQueries>
HWY_INLINE void dot_block(const float* HWY_RESTRICT q, const TileRows& keys, size_t first,
                          size_t columns, float* HWY_RESTRICT scores) {
  const FloatTag d;
  std::array<Vector, kQueries * kBlockKeys> sums;
  sums.fill(hn::Zero(d));
  std::array<const void*, kBlockKeys> rows;
  for (size_t i = 0; i < kBlockKeys; ++i) rows[i] = keys[first + i];
  constexpr size_t kVectors = kPaired ? 2 : 1;
  for (size_t column = 0; column < columns; column += kVectors * kLanes) {
    for (size_t c = 0; c < kVectors; ++c) {
      std::array<Vector, kBlockKeys> key;
      for (size_t k = 0; k < kBlockKeys; ++k) {
        key[k] = load_vector<kDtype, kPaired>(rows[k], column, c);
      }
      for (size_t i = 0; i < kQueries; ++i) {
        const Vector query = hn::Load(d, q + i * kRowStride + column + c * kLanes);
        for (size_t k = 0; k < kBlockKeys; ++k) {
          sums[i * kBlockKeys + k] = hn::MulAdd(query, key[k], sums[i * kBlockKeys + k]);
        }
      }
    }
  }
  for (size_t i = 0; i < kQueries; ++i) {
    store_sums(&sums[i * kBlockKeys], scores + i * kTileKeys);
  }
}

// How many blocks so many queries are: whole ones, and one for each query left.
constexpr size_t query_blocks(size_t queries) {
  return queries / kBlockQueries + queries % kBlockQueries;
}

// scores [queries, kTileKeys] = Q K^T. Calls prefetch() before each block.
template <Dtype kDtype, bool kPaired, typename Prefetch>
HWY_INLINE void dot_tile(const float* q, size_t queries, const TileRows& k, size_t columns,
                         float* scores, const Prefetch& prefetch) {
  for (size_t key = 0; key < k.count; key += kBlockKeys) {
    size_t i = 0;
    for (; i + kBlockQueries <= queries; i += kBlockQueries) {
      prefetch();
      dot_block<kDtype, kPaired, kBlockQueries>(q + i * kRowStride, k, key, columns,
                                                scores + i * kTileKeys + key);
    }
    for (; i < queries; ++i) {
      prefetch();
      dot_block<kDtype, kPaired, 1>(q + i * kRowStride, k, key, columns,
                                    scores + i * kTileKeys + key);
    }
  }
}
// How often it does so in a whole tile.
constexpr size_t dot_tile_prefetches(size_t queries) {
  return kTileKeys / kBlockKeys * query_blocks(queries);
}

// One step of the online softmax of a query: turns its scores of a tile, in base 2, into
// P = 2^(score - maximum), and updates the running maximum and sum. P is 0 outside of the keys
// `seen`. Returns the factor by which O must be multiplied.
HWY_INLINE float softmax_tile(float* HWY_RESTRICT scores, RowRange seen, float* maximum,
                              float* sum) {
  const FloatTag d;
  std::fill_n(scores, seen.first, kHidden);
  std::fill(scores + seen.end, scores + kTileKeys, kHidden);
  Vector most = hn::Set(d, *maximum);
  for (size_t k = 0; k < kTileKeys; k += kLanes) most = hn::Max(most, hn::Load(d, scores + k));
  const float new_max = hn::GetLane(hn::MaxOfLanes(d, most));
  // If a query has seen no key yet, or only scores of -infinity, P must be 0, not NaN.
  const Vector base = hn::Set(d, new_max == kHidden ? 0.0f : new_max);
  Vector added = hn::Zero(d);
  for (size_t k = 0; k < kTileKeys; k += kLanes) {
    const Vector p = exp2(hn::Sub(hn::Load(d, scores + k), base));
    hn::Store(p, d, scores + k);
    added = hn::Add(added, p);
  }
  const float factor = hn::GetLane(exp2(hn::Sub(hn::Set(d, *maximum), base)));
  *maximum = new_max;
  *sum = *sum * factor + hn::GetLane(hn::SumOfLanes(d, added));
  return factor;
}

// O = O * rescale + P V for kQueries queries and kVectors vectors of columns, keys [from, to).
template <Dtype kDtype, bool kPaired, size_t kQueries, size_t kVectors, typename Prefetch>
HWY_INLINE void add_block(const float* HWY_RESTRICT p, const TileRows& v, size_t from, size_t to,
                          size_t column, const float* rescale, float* HWY_RESTRICT o,
                          size_t o_stride, const Prefetch& prefetch) {
  const FloatTag d;
  std::array<Vector, kQueries * kVectors> sums;
  sums.fill(hn::Zero(d));
  const auto add_key = [&](size_t key) HWY_ATTR {
    std::array<Vector, kVectors> value;
    for (size_t c = 0; c < kVectors; ++c) {
      value[c] = load_vector<kDtype, kPaired>(v[key], column, c);
    }
    for (size_t i = 0; i < kQueries; ++i) {
      const Vector weight = hn::Set(d, p[i * kTileKeys + key]);
      for (size_t c = 0; c < kVectors; ++c) {
        sums[i * kVectors + c] = hn::MulAdd(weight, value[c], sums[i * kVectors + c]);
      }
    }
  };
  size_t key = from;
  for (; key + kPrefetchKeys <= to; key += kPrefetchKeys) {
    prefetch();
    for (size_t i = 0; i < kPrefetchKeys; ++i) add_key(key + i);  // unrolled
  }
  for (; key < to; ++key) add_key(key);
  for (size_t i = 0; i < kQueries; ++i) {
    for (size_t c = 0; c < kVectors; ++c) {
      float* at = o + i * o_stride + column + c * kLanes;
      hn::Store(hn::MulAdd(hn::Load(d, at), hn::Set(d, rescale[i]), sums[i * kVectors + c]), d, at);
    }
  }
}

// The vectors of a block of columns behind the last whole one.
template <bool kPaired>
constexpr size_t kLeftVectors = kPaired ? 2 : 1;

// All columns.
template <Dtype kDtype, bool kPaired, size_t kQueries, typename Prefetch>
HWY_INLINE void add_queries(const float* p, const TileRows& v, size_t from, size_t to,
                            size_t columns, const float* rescale, float* o, size_t o_stride,
                            const Prefetch& prefetch) {
  constexpr size_t kLeft = kLeftVectors<kPaired>;
  size_t column = 0;
  for (; column + kBlockVectors * kLanes <= columns; column += kBlockVectors * kLanes) {
    add_block<kDtype, kPaired, kQueries, kBlockVectors>(p, v, from, to, column, rescale, o,
                                                        o_stride, prefetch);
  }
  for (; column < columns; column += kLeft * kLanes) {
    add_block<kDtype, kPaired, kQueries, kLeft>(p, v, from, to, column, rescale, o, o_stride,
                                                prefetch);
  }
}

// Loads the queries that share the chunk's K/V heads, scaled for the softmax in base 2 and by the
// factor of K.
HWY_INLINE void load_few_queries(const ConstTensorView& q, const ConstTensorView& k,
                                 const Problem& p, const KeyChunk& at, float* to) {
  const auto columns = static_cast<size_t>(p.head_dim);
  const auto unscaled = static_cast<float>(p.softmax_scale() * std::numbers::log2e);
  const int64_t group = p.heads_per_kv_head();
  const bool paired = reads_pairs(p, k.dtype);
  for (int64_t h = at.first_head * group; h < (at.first_head + at.heads) * group; ++h) {
    const float scale = unscaled * factor_of_head(k, at.batch, h / group);
    load_rows(q, at.batch, h, 0, static_cast<size_t>(p.q_len), to, kRowStride);
    for (int64_t row = 0; row < p.q_len; ++row, to += kRowStride) {
      std::transform(to, to + columns, to, [=](float x) { return x * scale; });
      if (paired) split_pairs(to, columns);
      std::fill(to + columns, to + round_up(columns, kLanes), 0.0f);
    }
  }
}

// A tile's rows of head at.first_head + head: `first`, those of the first head, with the offset of
// this one. If a row is no whole number of vectors, `copied`, whose rows are copied to fp32 and
// padded with zeros.
HWY_INLINE const TileRows& rows_of_head(const ConstTensorView& t, int64_t head, float* copy,
                                        TileRows& first, TileRows& copied) {
  first.offset = head * t.head_stride * element_size(t.dtype);
  if (copy == nullptr) return first;
  const auto columns = static_cast<size_t>(t.head_dim);
  copied.count = first.count;
  for (size_t i = 0; i < round_up(first.count, kBlockKeys); ++i) {
    float* row = copy + i * kRowStride;
    load_row(first[i], t.dtype, columns, row);
    std::fill(row + columns, row + round_up(columns, kLanes), 0.0f);
    copied.address[i] = reinterpret_cast<const char*>(row);
  }
  return copied;
}

// O = O * rescale + P V of all queries that share a head. A key that a query does not see must not
// reach it even if V holds Inf or NaN: seen(row) are the tile's keys that it sees. Calls prefetch()
// before every whole kPrefetchKeys keys of a block.
template <Dtype kDtype, bool kPaired, typename Seen, typename Prefetch>
HWY_INLINE void add_tile(const float* p, size_t rows, const Seen& seen, bool all_see_all,
                         const TileRows& v, size_t columns, const float* rescale, float* o,
                         size_t o_stride, const Prefetch& prefetch) {
  size_t row = 0;
  if (all_see_all) {
    for (; row + kBlockQueries <= rows; row += kBlockQueries) {
      add_queries<kDtype, kPaired, kBlockQueries>(p + row * kTileKeys, v, 0, v.count, columns,
                                                  rescale + row, o + row * o_stride, o_stride,
                                                  prefetch);
    }
  }
  for (; row < rows; ++row) {
    const RowRange keys = seen(row);
    add_queries<kDtype, kPaired, 1>(p + row * kTileKeys, v, static_cast<size_t>(keys.first),
                                    static_cast<size_t>(keys.end), columns, rescale + row,
                                    o + row * o_stride, o_stride, prefetch);
  }
}
// How often it does so in a whole tile that all queries see.
template <bool kPaired>
constexpr size_t add_tile_prefetches(size_t queries, size_t columns) {
  const size_t vectors = columns / kLanes;
  return kTileKeys / kPrefetchKeys * query_blocks(queries) *
         (vectors / kBlockVectors + vectors % kBlockVectors / kLeftVectors<kPaired>);
}

template <Dtype kDtype, bool kPaired = false>
void attend_tiles(const Problem& p, const Inputs& in, const KeyChunk& at, bool copied,
                  const ChunkScratch& s, const ChunkResults& to) {
  const auto queries = static_cast<size_t>(p.q_len);
  const size_t rows = static_cast<size_t>(p.heads_per_kv_head()) * queries;
  const size_t columns = round_up(static_cast<size_t>(p.head_dim), kLanes);
  const size_t value_columns = round_up(static_cast<size_t>(p.value_dim()), kLanes);
  const auto o_stride = static_cast<size_t>(to.value_stride);
  // The rows of the next tile that each prefetch asks for, so that none is left at this one's end.
  const auto rows_each = [](size_t times) { return (kTileKeys + times - 1) / times; };
  const size_t k_step = rows_each(dot_tile_prefetches(rows));
  const size_t v_step = rows_each(add_tile_prefetches<kPaired>(rows, value_columns));

  std::array<RowRange, kFewQueries> visible, seen;
  for (size_t i = 0; i < queries; ++i) visible[i] = p.visible_keys(static_cast<int64_t>(i));
  const auto seen_by = [&](size_t row) { return seen[row % queries]; };
  std::array<TileRows, 2> rows_k, rows_v;  // of this tile and the next, in turn
  TileRows copied_k, copied_v;
  const auto point_to_tile = [&](size_t turn, int64_t first) {
    const auto count = static_cast<size_t>(std::min(kChunkTile, at.keys.end - first));
    point_to_rows(in.k, at.batch, at.first_head, first, count, rows_k[turn]);
    point_to_rows(in.v, at.batch, at.first_head, first, count, rows_v[turn]);
  };
  point_to_tile(0, at.keys.first);
  size_t turn = 0;
  for (int64_t first = at.keys.first; first < at.keys.end; first += kChunkTile, turn ^= 1) {
    const int64_t count = std::min(kChunkTile, at.keys.end - first);
    bool all_see_all = true;
    for (size_t i = 0; i < queries; ++i) {
      seen[i] = {std::clamp<int64_t>(visible[i].first - first, 0, count),
                 std::clamp<int64_t>(visible[i].end - first, 0, count)};
      all_see_all = all_see_all && seen[i].size() == count;
    }
    point_to_tile(turn ^ 1, first + count);
    TilePrefetcher next_k(in.k, at.heads, rows_k[turn ^ 1]);
    TilePrefetcher next_v(in.v, at.heads, rows_v[turn ^ 1]);
    const auto prefetch_k = [&]() HWY_ATTR { next_k.step(k_step); };
    const auto prefetch_v = [&]() HWY_ATTR { next_v.step(v_step); };

    for (int64_t head = 0; head < at.heads; ++head) {
      const int64_t result = at.first_result + head * at.results_per_head;
      const TileRows& k = rows_of_head(in.k, head, copied ? s.k : nullptr, rows_k[turn], copied_k);
      dot_tile<kDtype, kPaired>(s.q + static_cast<size_t>(head) * rows * kRowStride, rows, k,
                                columns, s.scores, prefetch_k);
      for (size_t row = 0; row < rows; ++row) {
        s.rescale[row] = softmax_tile(s.scores + row * kTileKeys, seen_by(row),
                                      to.maximum(result) + row, to.sum(result) + row);
      }
      const TileRows& v = rows_of_head(in.v, head, copied ? s.v : nullptr, rows_v[turn], copied_v);
      add_tile<kDtype, kPaired>(s.scores, rows, seen_by, all_see_all, v, value_columns, s.rescale,
                                to.o(result), o_stride, prefetch_v);
    }
  }
}

// Attention of all queries of some heads over a chunk of keys.
inline void attend_chunk(const Problem& whole, const Inputs& in, const KeyChunk& at,
                         const ChunkScratch& s, const ChunkResults& to) {
  const Problem p = whole.request(at.batch);
  const int64_t rows = p.heads_per_kv_head() * p.q_len;
  for (int64_t head = 0; head < at.heads; ++head) {
    const int64_t result = at.first_result + head * at.results_per_head;
    std::fill_n(to.o(result), rows * to.value_stride, 0.0f);
    std::fill_n(to.maximum(result), rows, kHidden);
    std::fill_n(to.sum(result), rows, 0.0f);
  }
  load_few_queries(in.q, in.k, p, at, s.q);
  const auto lanes = static_cast<int64_t>(kLanes);
  const bool copied = p.head_dim % lanes != 0 || p.value_dim() % lanes != 0;
  switch (copied ? Dtype::fp32 : in.k.dtype) {
    case Dtype::fp32:
      return attend_tiles<Dtype::fp32>(p, in, at, copied, s, to);
    case Dtype::fp16:
      return attend_tiles<Dtype::fp16>(p, in, at, copied, s, to);
    case Dtype::bf16:
      return reads_pairs(p, in.k.dtype) ? attend_tiles<Dtype::bf16, true>(p, in, at, copied, s, to)
                                        : attend_tiles<Dtype::bf16>(p, in, at, copied, s, to);
    case Dtype::e4m3:
      return attend_tiles<Dtype::e4m3>(p, in, at, copied, s, to);
  }
}

// Merges results of one query, the row of those that share the K/V head: O times `factor`, in fp32,
// and its logsumexp, which it returns.
HWY_INLINE float merge_row(const ChunkResults& from, RowRange results, size_t row, float factor,
                           float* HWY_RESTRICT o) {
  const FloatTag d;
  float maximum = kHidden;
  for (int64_t result = results.first; result < results.end; ++result) {
    maximum = std::max(maximum, from.maximum(result)[row]);
  }
  const auto columns = static_cast<size_t>(from.value_stride);
  std::fill_n(o, columns, 0.0f);
  float sum = 0;
  for (int64_t result = results.first; result < results.end; ++result) {
    const float offset = from.maximum(result)[row] - (maximum == kHidden ? 0 : maximum);
    const Vector weight = exp2(hn::Set(d, offset));
    sum += hn::GetLane(weight) * from.sum(result)[row];
    const float* part = from.o(result) + row * columns;
    for (size_t i = 0; i < columns; i += kLanes) {
      hn::Store(hn::MulAdd(weight, hn::Load(d, part + i), hn::Load(d, o + i)), d, o + i);
    }
  }
  const Vector inverse = hn::Set(d, factor * inverse_of(sum));
  for (size_t i = 0; i < columns; i += kLanes) {
    hn::Store(hn::Mul(hn::Load(d, o + i), inverse), d, o + i);
  }
  return natural_logsumexp(maximum, sum);
}

// Merges the results of all queries of a query head. `o`: scratch of kRowStride floats.
inline void merge_results(const Problem& p, const ConstTensorView& v, const Outputs& out,
                          const RowTile& at, RowRange results, const ChunkResults& from, float* o) {
  const float factor = factor_of_head(v, at.batch, at.head / p.heads_per_kv_head());
  for (int64_t i = 0; i < at.rows; ++i) {
    const int64_t row = at.head % p.heads_per_kv_head() * at.rows + i;
    out.logsumexp[p.query_index(at.batch, at.head, i)] =
        merge_row(from, results, static_cast<size_t>(row), factor, o);
    if (reads_pairs(p, v.dtype)) join_pairs(o, static_cast<size_t>(p.value_dim()));
    store_rows(o, kRowStride, 1.0f, 1, out.o, at.batch, at.head, i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace flashbench::kernels
HWY_AFTER_NAMESPACE();

#endif  // include once per target
