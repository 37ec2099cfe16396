// Attention of a few queries: a chunk of keys at a time, for all queries that share a K/V head.
// Each row of K and V is read once, converted in registers (pairs of bf16 may be multiplied as they
// are), and multiplied by every query, so that memory sets the pace. Memory is fastest from front
// to back, and the heads of a row may lie beside each other, so a tile of keys is computed for one
// head after the other while the next tile is prefetched row by row, a few rows before each block
// of products: a core has room for some twenty cache lines on their way, and waits when they are
// asked for in one burst. Highway includes this file once per target.
#if defined(FLASHBENCH_KERNELS_CPU_CHUNKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FLASHBENCH_KERNELS_CPU_CHUNKS_INL_H_
#undef FLASHBENCH_KERNELS_CPU_CHUNKS_INL_H_
#else
#define FLASHBENCH_KERNELS_CPU_CHUNKS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numbers>
#include <type_traits>

#include "kernels/cpu/chunk_pairs-inl.h"
#include "kernels/cpu/chunk_rows-inl.h"
#include "kernels/cpu/forward_work.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace flashbench::kernels {
namespace HWY_NAMESPACE {

// The score of a key that a query does not see.
constexpr float kHidden = -std::numeric_limits<float>::infinity();

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

// The scores of a tile, block by block: calls dot(number of queries, first query, first key), whose
// number is a constant, and prefetch() before each.
template <typename Dot, typename Prefetch>
HWY_INLINE void dot_tile(size_t queries, size_t keys, const Dot& dot, const Prefetch& prefetch) {
  for (size_t key = 0; key < keys; key += kBlockKeys) {
    size_t i = 0;
    for (; i + kBlockQueries <= queries; i += kBlockQueries) {
      prefetch();
      dot(std::integral_constant<size_t, kBlockQueries>(), i, key);
    }
    for (; i < queries; ++i) {
      prefetch();
      dot(std::integral_constant<size_t, 1>(), i, key);
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
// factor of K; or as they are, if pairs are multiplied.
HWY_INLINE void load_few_queries(const ConstTensorView& q, const ConstTensorView& k,
                                 const Problem& p, const KeyChunk& at, float* to) {
  const auto columns = static_cast<size_t>(p.head_dim);
  const auto unscaled = static_cast<float>(p.softmax_scale() * std::numbers::log2e);
  const int64_t group = p.heads_per_kv_head();
  const bool paired = reads_pairs(p, k.dtype), as_they_are = multiplies_pairs(p);
  for (int64_t h = at.first_head * group; h < (at.first_head + at.heads) * group; ++h) {
    if (as_they_are) {
      for (int64_t row = 0; row < p.q_len; ++row, to += kRowStride) {
        std::memcpy(to, row_address(q, at.batch, h, row), columns * sizeof(uint16_t));
      }
      continue;
    }
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

template <Dtype kDtype, bool kPaired = false, bool kMultipliesPairs = false>
void attend_tiles(const Problem& p, const Inputs& in, const KeyChunk& at, bool copied,
                  const ChunkScratch& s, const ChunkResults& to) {
  const auto queries = static_cast<size_t>(p.q_len);
  const size_t rows = static_cast<size_t>(p.heads_per_kv_head()) * queries;
  const size_t columns = round_up(static_cast<size_t>(p.head_dim), kLanes);
  const size_t value_columns = round_up(static_cast<size_t>(p.value_dim()), kLanes);
  const auto o_stride = static_cast<size_t>(to.value_stride);
  [[maybe_unused]] const auto scale = static_cast<float>(p.softmax_scale() * std::numbers::log2e);
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
      const float* const q = s.q + static_cast<size_t>(head) * rows * kRowStride;
      const auto dot = [&](auto of_block, size_t row, size_t key) HWY_ATTR {
        const float* const from = q + row * kRowStride;
        float* const scores = s.scores + row * kTileKeys + key;
        if constexpr (kMultipliesPairs) {
          dot_block_of_pairs<of_block>(from, k, key, columns, scale, scores);
        } else {
          dot_block<kDtype, kPaired, of_block>(from, k, key, columns, scores);
        }
      };
      dot_tile(rows, k.count, dot, prefetch_k);
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
      if constexpr (kTargetMultipliesPairs) {
        if (multiplies_pairs(p)) {
          return attend_tiles<Dtype::bf16, true, true>(p, in, at, copied, s, to);
        }
      }
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
