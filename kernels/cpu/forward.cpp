// Attention forward on the CPU: O = softmax(scale * Q K^T) V with an online softmax over key tiles
// (Milakov and Gimelshein 2018; Dao et al. 2022). Each vector lane holds another query, so that the
// softmax needs no horizontal operation.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/forward.cpp"
#include <hwy/foreach_target.h>
#include "kernels/cpu/targets.h"  // before foreach_target

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/row_tiles.h"
#include "kernels/attention.h"
#include "kernels/cpu/chunks-inl.h"
#include "kernels/cpu/gemm-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flashbench::kernels {
namespace HWY_NAMESPACE {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The keys of a tile that a panel of queries sees. Key indices are relative to the tile.
struct PanelKeys {
  size_t any_first, any_end;                   // keys that some query sees
  size_t all_first, all_end;                   // of these, those that all queries see
  HWY_ALIGN float first[kPanel], end[kPanel];  // those that each query sees; only if masked()

  // visible(i) is the range of keys that the panel's query i sees. Both ends rise with i.
  template <typename Visible>
  explicit PanelKeys(const Visible& visible) {
    const RowRange top = visible(0), bottom = visible(kPanel - 1);
    any_first = static_cast<size_t>(top.first);
    any_end = static_cast<size_t>(bottom.end);
    all_first = std::min(static_cast<size_t>(bottom.first), any_end);
    all_end = std::max(static_cast<size_t>(top.end), all_first);
    if (!masked()) return;
    for (size_t i = 0; i < kPanel; ++i) {
      const RowRange keys = visible(i);
      first[i] = static_cast<float>(keys.first);
      end[i] = static_cast<float>(keys.end);
    }
  }

  bool empty() const { return any_first == any_end; }
  bool masked() const { return any_first < all_first || all_end < any_end; }
};

// Sets the scores [keys, kPanel] of keys that a query does not see to -infinity.
HWY_INLINE void mask_panel(float* HWY_RESTRICT scores, const PanelKeys& keys) {
  const FloatTag d;
  const Vector hidden = hn::Set(d, -kInfinity);
  for (size_t lane = 0; lane < kPanel; lane += kLanes) {
    const Vector first = hn::Load(d, keys.first + lane), end = hn::Load(d, keys.end + lane);
    const auto mask_keys = [&](size_t from, size_t to) HWY_ATTR {
      for (size_t key = from; key < to; ++key) {
        float* address = scores + key * kPanel + lane;
        const Vector number = hn::Set(d, static_cast<float>(key));
        const auto seen = hn::And(hn::Ge(number, first), hn::Lt(number, end));
        hn::Store(hn::IfThenElse(seen, hn::Load(d, address), hidden), d, address);
      }
    };
    mask_keys(keys.any_first, keys.all_first);
    mask_keys(keys.all_end, keys.any_end);
  }
}

// One step of the online softmax for kLanes queries: turns their scores of this tile (in base 2,
// kPanel apart) into P = 2^(score - maximum), and updates the running maximum and sum. `rescale`
// receives the factor by which the sum was multiplied and O must be.
HWY_INLINE void softmax_step(float* HWY_RESTRICT scores, size_t keys, float* maximum, float* sum,
                             float* rescale) {
  const FloatTag d;
  const Vector old_max = hn::Load(d, maximum);
  Vector max0 = old_max, max1 = old_max;
  size_t key = 0;
  for (; key + 2 <= keys; key += 2) {
    max0 = hn::Max(max0, hn::Load(d, scores + key * kPanel));
    max1 = hn::Max(max1, hn::Load(d, scores + (key + 1) * kPanel));
  }
  if (key < keys) max0 = hn::Max(max0, hn::Load(d, scores + key * kPanel));
  const Vector new_max = hn::Max(max0, max1);
  // If a query has seen no key yet, all its scores are -infinity, and P must be 0, not NaN.
  const Vector base = hn::IfThenZeroElse(hn::Eq(new_max, hn::Set(d, -kInfinity)), new_max);

  const auto exponentiate = [&](size_t k) HWY_ATTR {
    float* address = scores + k * kPanel;
    const Vector p = exp2(hn::Sub(hn::Load(d, address), base));
    hn::Store(p, d, address);
    return p;
  };
  Vector sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  for (key = 0; key + 2 <= keys; key += 2) {
    sum0 = hn::Add(sum0, exponentiate(key));
    sum1 = hn::Add(sum1, exponentiate(key + 1));
  }
  if (key < keys) sum0 = hn::Add(sum0, exponentiate(key));
  const Vector factor = exp2(hn::Sub(old_max, base));
  hn::Store(new_max, d, maximum);
  hn::Store(factor, d, rescale);
  hn::Store(hn::MulAdd(hn::Load(d, sum), factor, hn::Add(sum0, sum1)), d, sum);
}

// O += P V for keys [from, to), which not all queries of a panel see. A key that a query does not
// see must not affect it even if V holds Inf or NaN; a matrix product would let it through, because
// 0 * NaN is NaN.
void add_seen_values(const float* v, const float* p, size_t from, size_t to, const PanelKeys& keys,
                     size_t value_dim, float* o) {
  for (size_t key = from; key < to; ++key) {
    const auto number = static_cast<float>(key);
    for (size_t lane = 0; lane < kPanel; ++lane) {
      if (number < keys.first[lane] || number >= keys.end[lane]) continue;
      for (size_t column = 0; column < value_dim; ++column) {
        o[column * kPanel + lane] += v[key * kRowStride + column] * p[key * kPanel + lane];
      }
    }
  }
}

// Loads Q, transposed to panels [head_dim, kPanel] and scaled for the softmax in base 2.
HWY_INLINE void load_queries(const ConstTensorView& q, int64_t b, int64_t h, int64_t first,
                             size_t rows, float scale, const ForwardScratch& s) {
  const auto head_dim = static_cast<size_t>(q.head_dim);
  for (size_t panel = 0; panel < rows; panel += kPanel) {
    const size_t panel_rows = std::min(kPanel, rows - panel);
    load_rows(q, b, h, first + static_cast<int64_t>(panel), panel_rows, s.k, kRowStride);
    for (size_t row = panel_rows; row < kPanel; ++row) {
      std::fill_n(s.k + row * kRowStride, head_dim, 0.0f);
    }
    transpose(s.k, kRowStride, kPanel, head_dim, scale, s.q + panel * head_dim, kPanel);
  }
}

// Stores O (the transposed O in scratch, divided by the sum, times the factor of V) and the natural
// logsumexp, which begins with that of row `first`.
HWY_INLINE void store_outputs(const TensorView& o, float* logsumexp, int64_t b, int64_t h,
                              int64_t first, size_t rows, float factor, const ForwardScratch& s) {
  const auto value_dim = static_cast<size_t>(o.head_dim);
  for (size_t panel = 0; panel < rows; panel += kPanel) {
    const size_t panel_rows = std::min(kPanel, rows - panel);
    transpose(s.o + panel * value_dim, kPanel, value_dim, kPanel, 1.0f, s.k, kRowStride);
    for (size_t row = 0; row < panel_rows; ++row) {
      const float sum = s.sum[panel + row];
      store_rows(s.k + row * kRowStride, kRowStride, factor * inverse_of(sum), 1, o, b, h,
                 first + static_cast<int64_t>(panel + row));
      logsumexp[panel + row] = natural_logsumexp(s.maximum[panel + row], sum);
    }
  }
}

// Computes one tile of queries of one head against all keys that it sees. At most `most_keys` keys
// are in scratch at a time.
void forward_tile(const Problem& whole, const Inputs& in, const Outputs& out, const RowTile& at,
                  int64_t most_keys, const KeyGate* gate, const ForwardScratch& s) {
  const Problem p = whole.request(at.batch);
  const int64_t b = at.batch, h = at.head, first_query = at.first;
  const auto head_dim = static_cast<size_t>(p.head_dim);
  const auto value_dim = static_cast<size_t>(p.value_dim());
  const int64_t kv_head = h / p.heads_per_kv_head();
  const int64_t query_end = first_query + at.rows;
  const auto rows = static_cast<size_t>(at.rows);
  const size_t panels_end = round_up(rows, kPanel);

  load_queries(in.q, b, h, first_query, rows,
               static_cast<float>(p.softmax_scale() * std::numbers::log2e) *
                   factor_of_head(in.k, b, kv_head),
               s);
  std::fill_n(s.o, panels_end * value_dim, 0.0f);
  std::fill_n(s.maximum, panels_end, -kInfinity);
  std::fill_n(s.sum, panels_end, 0.0f);

  const RowRange seen{p.visible_keys(first_query).first, p.visible_keys(query_end - 1).end};
  for (int64_t first_key = seen.first; first_key < seen.end; first_key += most_keys) {
    const int64_t tile_keys = std::min(most_keys, seen.end - first_key);
    const auto seen_by = [&](int64_t query) -> RowRange {
      const RowRange visible = p.visible_keys(std::min(query, query_end - 1));
      return {std::clamp<int64_t>(visible.first - first_key, 0, tile_keys),
              std::clamp<int64_t>(visible.end - first_key, 0, tile_keys)};
    };
    if (gate != nullptr) gate->wait(first_key + tile_keys);
    load_rows(in.k, b, kv_head, first_key, static_cast<size_t>(tile_keys), s.k, kRowStride);
    load_rows(in.v, b, kv_head, first_key, static_cast<size_t>(tile_keys), s.v, kRowStride);

    const int64_t next_key = first_key + most_keys;
    const int64_t next_keys = std::min(most_keys, seen.end - next_key);
    RowPrefetcher next_k(in.k, b, kv_head, next_key, next_keys);
    RowPrefetcher next_v(in.v, b, kv_head, next_key, next_keys);
    const auto prefetch = [&]() HWY_ATTR {
      next_k.step();
      next_v.step();
    };

    for (size_t panel = 0; panel < panels_end; panel += kPanel) {
      const int64_t panel_query = first_query + static_cast<int64_t>(panel);
      const PanelKeys keys(
          [&](size_t i) { return seen_by(panel_query + static_cast<int64_t>(i)); });
      if (keys.empty()) continue;
      multiply_panel<A::rows, C::store>(
          s.k + keys.any_first * kRowStride, kRowStride, s.q + panel * head_dim, kPanel,
          keys.any_end - keys.any_first, head_dim, s.scores + keys.any_first * kPanel, kPanel,
          nullptr, prefetch);
      size_t first = keys.any_first, end = keys.any_end;  // of the product with V
      if (keys.masked()) {
        mask_panel(s.scores, keys);
        if (!all_finite(s.v, kRowStride, keys.any_first, keys.all_first, value_dim) ||
            !all_finite(s.v, kRowStride, keys.all_end, keys.any_end, value_dim)) {
          first = keys.all_first;
          end = keys.all_end;
        }
      }
      for (size_t lane = 0; lane < kPanel; lane += kLanes) {
        softmax_step(s.scores + keys.any_first * kPanel + lane, keys.any_end - keys.any_first,
                     s.maximum + panel + lane, s.sum + panel + lane, s.rescale + lane);
      }
      float* const o = s.o + panel * value_dim;
      multiply_panel<A::transposed, C::rescale>(s.v + first * kRowStride, kRowStride,
                                                s.scores + first * kPanel, kPanel, value_dim,
                                                end - first, o, kPanel, s.rescale, prefetch);
      add_seen_values(s.v, s.scores, keys.any_first, first, keys, value_dim, o);
      add_seen_values(s.v, s.scores, end, keys.any_end, keys, value_dim, o);
    }
  }
  store_outputs(out.o, out.logsumexp + whole.query_index(b, h, first_query), b, h, first_query,
                rows, factor_of_head(in.v, b, kv_head), s);
}

}  // namespace HWY_NAMESPACE
}  // namespace flashbench::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flashbench::kernels {
namespace {

HWY_EXPORT(forward_tile);
HWY_EXPORT(attend_chunk);
HWY_EXPORT(merge_results);
HWY_EXPORT(multiplies_pairs);

// Scratch of every thread, and the results of chunks.
struct Workspace {
  Workspace(Carver carver, const Problem& p, const ForwardWork& work, int threads)
      : results(carver, work.results(), work.most_rows(), p.value_dim()) {
    for (int i = 0; i < threads; ++i) {
      if (work.tiles().size() > 0) tiles.emplace_back(carver, work.tile(), p);
      if (work.merges().size() > 0) {
        chunks.emplace_back(carver, work.most_heads(), work.most_rows());
      }
    }
    bytes = carver.bytes();
  }

  ChunkResults results;
  std::vector<ForwardScratch> tiles;
  std::vector<ChunkScratch> chunks;
  size_t bytes;
};

std::optional<std::string> why_unsupported(const Problem&, const DeviceInfo&) {
  return std::nullopt;
}

std::string variant(const Launch& at) {
  const ForwardWork work(at.problem, at.device.threads);
  std::string name = "cpu_tiled_forward";
  if (work.tiles().size() > 0) name += fmt::format(" {}", name_of(work.tile()));
  if (work.merges().size() > 0) {
    name += fmt::format(" chunks of {}", kChunkKeys);
    if (HWY_DYNAMIC_DISPATCH(multiplies_pairs)(at.problem)) name += " by pairs of bf16";
  }
  return with_target(name);
}

size_t workspace_bytes(const Launch& at) {
  const ForwardWork work(at.problem, at.device.threads);
  return Workspace(Carver(nullptr), at.problem, work, at.device.threads).bytes;
}

// Q is read once; O and L are written once. Every query tile reads the keys and values that it
// sees, and the block table's entries of their pages, for K and for V. All queries that share a
// chunk of keys read it together, and what it gives is written and read.
int64_t requested_bytes(const Launch& at) {
  const Problem& p = at.problem;
  const ForwardWork work(p, at.device.threads);
  int64_t rows = 0, pages = 0, results = 0;  // rows and pages of K
  const auto add = [&](RowRange keys, int64_t heads) {
    rows += heads * keys.size();
    pages += heads * p.pages_with(keys);
  };
  for (int64_t i = 0; i < work.tiles().size(); ++i) {
    const RowTile tile = work.tiles()[i];
    const Problem request = p.request(tile.batch);
    const int64_t last = tile.first + tile.rows - 1;
    add({request.visible_keys(tile.first).first, request.visible_keys(last).end}, 1);
  }
  for (int64_t i = 0; i < work.chunks(); ++i) {
    const KeyChunk chunk = work.chunk(i);
    add(chunk.keys, chunk.heads);
    results += chunk.heads * p.heads_per_kv_head() * p.q_len_of(chunk.batch);
  }
  const int64_t floats = p.query_rows() + 2 * results * (p.value_dim() + 2);
  return element_size(p.dtype) * (p.query_elements() + p.output_elements()) +
         element_size(p.key_dtype()) * rows * (p.head_dim + p.value_dim()) +
         static_cast<int64_t>(sizeof(float)) * floats +
         2 * static_cast<int64_t>(sizeof(int32_t)) * pages;
}

// The last tiles of a head come first, because they see the most keys. Chunks are small, and fill
// what the tiles leave.
void launch(const Launch& at, const Inputs& in, const Outputs& out, void* memory, Stream stream) {
  const Problem& p = at.problem;
  ThreadPool& pool = *stream.threads;
  const ForwardWork work(p, pool.threads());
  const Workspace workspace(Carver(memory), p, work, pool.threads());

  const auto run_tile = HWY_DYNAMIC_DISPATCH(forward_tile);
  const auto run_chunk = HWY_DYNAMIC_DISPATCH(attend_chunk);
  const auto run_merge = HWY_DYNAMIC_DISPATCH(merge_results);
  const int64_t tiles = work.tiles().size();
  pool.parallel_for(tiles + work.chunks(), [&](int64_t item, int thread) {
    const auto own = static_cast<size_t>(thread);
    if (item < tiles) {
      run_tile(p, in, out, work.tiles().last_first(item), work.tile().keys, at.gate,
               workspace.tiles[own]);
    } else {
      const KeyChunk chunk = work.chunk(item - tiles);
      if (at.gate != nullptr) at.gate->wait(chunk.keys.end);
      run_chunk(p, in, chunk, workspace.chunks[own], workspace.results);
    }
  });
  pool.parallel_for(work.merges().size(), [&](int64_t item, int thread) {
    const RowTile rows = work.merges()[item];
    const RowRange results = work.results_of(rows.batch, rows.head / p.heads_per_kv_head());
    run_merge(p, in.v, out, rows, results, workspace.results,
              workspace.chunks[static_cast<size_t>(thread)].k);
  });
}

}  // namespace

extern const AttentionKernel kCpuTiledForward{.name = "cpu_tiled_forward",
                                              .family = "cpu",
                                              .device = DeviceKind::cpu,
                                              .pass = Pass::forward,
                                              .knows_windows = true,
                                              .knows_head_dim_v = true,
                                              .knows_lengths = true,
                                              .knows_pages = true,
                                              .knows_kv_dtype = true,
                                              .knows_gates = true,
                                              .knows_fp32_outputs = true,
                                              .why_unsupported = why_unsupported,
                                              .variant = variant,
                                              .workspace_bytes = workspace_bytes,
                                              .requested_bytes = requested_bytes,
                                              .launch = launch};

}  // namespace flashbench::kernels
#endif
