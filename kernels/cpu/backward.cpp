// Attention backward on the CPU: dQ, dK and dV from Q, K, V, O, dO and the logsumexp, with P
// recomputed tile by tile (Dao et al. 2022, algorithm 4; key tiles outside, query tiles inside):
//
//   P = 2^(S - L)      dV = P^T dO      dP = dO V^T      D = rowsum(dO * O)
//   dS = P * (dP - D)  dQ = scale dS K  dK = scale dS^T Q
//
// with S = scale * log2(e) * Q K^T and L the logsumexp in base 2.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/backward.cpp"
#include "kernels/cpu/targets.h"  // before Highway

#include <hwy/foreach_target.h>

#include <algorithm>
#include <numbers>
#include <vector>

#include "attention/row_tiles.h"
#include "kernels/attention.h"
#include "kernels/cpu/backward_types.h"
#include "kernels/cpu/gemm-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flashbench::kernels {
namespace HWY_NAMESPACE {

// Computes D and the base-2 logsumexp of these rows.
void row_statistics(const Problem& p, const Inputs& in, const RowTile& at,
                    const BackwardWorkspace& w, const BackwardScratch& s) {
  const int64_t to = BackwardWorkspace::first_row(p, at.batch, at.head);
  for (int64_t row = at.first; row < at.first + at.rows; ++row) {
    load_rows(in.o, at.batch, at.head, row, 1, s.q, kRowStride);
    load_rows(in.d_o, at.batch, at.head, row, 1, s.d_o, kRowStride);
    w.delta[to + row] = dot_row(s.q, s.d_o, static_cast<size_t>(p.value_dim()));
    w.logsumexp[to + row] =
        in.logsumexp[p.query_index(at.batch, at.head, row)] * std::numbers::log2e_v<float>;
  }
}

// Loads K as rows and as panels scaled for the softmax in base 2, and V as panels; clears dK and
// dV. Returns whether K has neither Inf nor NaN. Without a mask this does not matter, and the
// result is always true.
HWY_INLINE bool load_keys(const Problem& p, const Inputs& in, int64_t b, int64_t kv_head,
                          const KeyTile& t, const BackwardScratch& s) {
  const auto keys = static_cast<size_t>(t.keys);
  const size_t padded = round_up(keys, kPanel);
  const auto load = [&](const ConstTensorView& from, float scale, float* panels) HWY_ATTR {
    const auto columns = static_cast<size_t>(from.head_dim);
    load_rows(from, b, kv_head, t.first, keys, s.k, kRowStride);
    std::fill_n(s.k + keys * kRowStride, (padded - keys) * kRowStride, 0.0f);
    for (size_t key = 0; key < padded; key += kPanel) {
      transpose(s.k + key * kRowStride, kRowStride, kPanel, columns, scale, panels + key * columns,
                kPanel);
    }
  };
  load(in.v, 1.0f, s.v_panels);
  load(in.k, static_cast<float>(p.softmax_scale() * std::numbers::log2e), s.k_panels);
  std::fill_n(s.dk, keys * kRowStride, 0.0f);
  std::fill_n(s.dv, keys * kRowStride, 0.0f);
  return !p.is_masked() || all_finite(s.k, kRowStride, 0, keys, static_cast<size_t>(p.head_dim));
}

// Turns `rows` rows of one panel of S and dP into P and dS, in place.
HWY_INLINE void softmax_gradient(float* HWY_RESTRICT s_to_p, float* HWY_RESTRICT dp_to_ds,
                                 size_t rows, const float* logsumexp, const float* delta) {
  const FloatTag d;
  for (size_t row = 0; row < rows; ++row) {
    const Vector row_logsumexp = hn::Set(d, logsumexp[row]);
    const Vector row_delta = hn::Set(d, delta[row]);
    for (size_t lane = 0; lane < kPanel; lane += kLanes) {
      float* p_address = s_to_p + row * kRowStride + lane;
      float* ds_address = dp_to_ds + row * kRowStride + lane;
      const Vector p = exp2(hn::Sub(hn::Load(d, p_address), row_logsumexp));
      hn::Store(p, d, p_address);
      hn::Store(hn::Mul(p, hn::Sub(hn::Load(d, ds_address), row_delta)), d, ds_address);
    }
  }
}

// The rows of a product over keys [key, end): those that see any of the keys, rounded to whole
// panels, so that a panel of rows is either multiplied by a panel of keys or skipped.
HWY_INLINE RowRange rows_of_panel(const QueryTile& q, size_t key, size_t end) {
  const RowRange top = q.rows_that_see(static_cast<int64_t>(key));
  const RowRange bottom = q.rows_that_see(static_cast<int64_t>(end) - 1);
  constexpr auto kStep = static_cast<int64_t>(kPanel);
  return {round_down(top.first, kStep), std::min(q.rows, round_up(bottom.end, kStep))};
}

// Computes P and dS of one tile, one panel of keys at a time; both are 0 for keys that a row does
// not see. `between` is called between blocks of work.
template <typename Between>
HWY_INLINE void recompute(const QueryTile& q, const float* logsumexp, const float* delta,
                          const BackwardScratch& s, const Between& between) {
  const auto head_dim = static_cast<size_t>(q.p.head_dim);
  const auto value_dim = static_cast<size_t>(q.p.value_dim());
  const auto keys = static_cast<size_t>(q.key_tile.keys);
  for (size_t key = 0; key < keys; key += kPanel) {
    const size_t end = std::min(key + kPanel, keys);
    const RowRange range = rows_of_panel(q, key, end);
    if (range.end <= range.first) continue;
    const auto first = static_cast<size_t>(range.first), rows = static_cast<size_t>(range.size());
    const size_t at = first * kRowStride;
    multiply_panel<A::rows, C::store>(s.q + at, kRowStride, s.k_panels + key * head_dim, kPanel,
                                      rows, head_dim, s.p + at + key, kRowStride, nullptr, between);
    multiply_panel<A::rows, C::store>(s.d_o + at, kRowStride, s.v_panels + key * value_dim, kPanel,
                                      rows, value_dim, s.ds + at + key, kRowStride, nullptr,
                                      between);
    softmax_gradient(s.p + at + key, s.ds + at + key, rows, logsumexp + first, delta + first);
    const auto hide = [&](int64_t row) {
      const RowRange visible = q.visible(row);
      const auto seen_first = std::clamp(static_cast<size_t>(visible.first), key, key + kPanel);
      const auto seen_end = std::clamp(static_cast<size_t>(visible.end), seen_first, key + kPanel);
      for (float* matrix : {s.p, s.ds}) {
        float* const columns = matrix + static_cast<size_t>(row) * kRowStride;
        std::fill(columns + key, columns + seen_first, 0.0f);
        std::fill(columns + seen_end, columns + key + kPanel, 0.0f);
      }
    };
    // Rows between these two see all of the panel's keys.
    const int64_t before = q.rows_that_see(static_cast<int64_t>(end) - 1).first;
    const int64_t behind = std::max(before, q.rows_that_see(static_cast<int64_t>(key)).end);
    for (int64_t row = range.first; row < std::min(before, range.end); ++row) hide(row);
    for (int64_t row = behind; row < range.end; ++row) hide(row);
  }
}

// dV += P^T dO, dK += dS^T Q, dQ += dS K for one tile.
HWY_INLINE void accumulate(const QueryTile& q, bool finite_keys, float* dq, size_t dq_stride,
                           const BackwardScratch& s) {
  const auto head_dim = static_cast<size_t>(q.p.head_dim);
  const auto value_dim = static_cast<size_t>(q.p.value_dim());
  const auto keys = static_cast<size_t>(q.key_tile.keys);
  const bool masked = q.masked();
  const size_t key_step = masked ? kPanel : keys;
  for (size_t key = 0; key < keys; key += key_step) {
    const size_t step = std::min(key_step, keys - key);
    const RowRange range = rows_of_panel(q, key, key + step);
    if (range.end <= range.first) continue;
    const auto rows = static_cast<size_t>(range.size());
    const size_t at = static_cast<size_t>(range.first) * kRowStride;
    for (size_t column = 0; column < value_dim; column += kPanel) {
      multiply_panel<A::transposed, C::add>(s.p + at + key, kRowStride, s.d_o + at + column,
                                            kRowStride, step, rows,
                                            s.dv + key * kRowStride + column, kRowStride);
    }
    for (size_t column = 0; column < head_dim; column += kPanel) {
      multiply_panel<A::transposed, C::add>(s.ds + at + key, kRowStride, s.q + at + column,
                                            kRowStride, step, rows,
                                            s.dk + key * kRowStride + column, kRowStride);
    }
  }
  // All rows of a panel are multiplied by the keys that any of them sees. dS = 0 hides the keys
  // that a row does not see, unless K is not finite: 0 * NaN is NaN.
  const int64_t row_step = !masked ? q.rows : finite_keys ? static_cast<int64_t>(kPanel) : 1;
  for (size_t column = 0; column < head_dim; column += kPanel) {
    for (int64_t row = 0; row < q.rows; row += row_step) {
      const int64_t step = std::min(row_step, q.rows - row);
      const auto first = static_cast<size_t>(q.visible(row).first);
      const auto end = static_cast<size_t>(q.visible(row + step - 1).end);
      multiply_panel<A::rows, C::add>(
          s.ds + static_cast<size_t>(row) * kRowStride + first, kRowStride,
          s.k + first * kRowStride + column, kRowStride, static_cast<size_t>(step), end - first,
          dq + static_cast<size_t>(row) * dq_stride + column, dq_stride);
    }
  }
}

// Computes dK and dV of every chunks-th key tile of one K/V head, and the share of dQ from these
// keys.
void backward_chunk(const Problem& whole, const Inputs& in, const Outputs& out, int64_t b,
                    int64_t kv_head, int64_t chunk, Tile tile, const KeyGate* gate,
                    const BackwardWorkspace& w, const BackwardScratch& s) {
  const Problem p = whole.request(b);
  const int64_t first_head = kv_head * p.heads_per_kv_head();
  const int64_t row0 = BackwardWorkspace::first_row(whole, b, first_head);
  float* chunk_dq = w.dq + (chunk * w.rows + row0) * w.dq_stride;
  std::fill_n(chunk_dq, p.heads_per_kv_head() * p.q_len * w.dq_stride, 0.0f);

  for (int64_t key = chunk * tile.keys; key < p.kv_len; key += w.chunks * tile.keys) {
    const KeyTile key_tile{key, std::min(tile.keys, p.kv_len - key)};
    const RowRange queries = queries_of(p, key_tile);
    if (gate != nullptr) gate->wait(key + key_tile.keys);
    const bool finite_keys = load_keys(p, in, b, kv_head, key_tile, s);
    for (int64_t group = 0; group < p.heads_per_kv_head(); ++group) {
      const int64_t h = first_head + group;
      for (int64_t row = queries.first; row < queries.end; row += tile.queries) {
        const QueryTile q{p, key_tile, row, std::min(tile.queries, queries.end - row)};
        load_rows(in.q, b, h, row, static_cast<size_t>(q.rows), s.q, kRowStride);
        load_rows(in.d_o, b, h, row, static_cast<size_t>(q.rows), s.d_o, kRowStride);
        const int64_t next_row = row + tile.queries;
        const int64_t next_rows = std::min(tile.queries, queries.end - next_row);
        RowPrefetcher next_q(in.q, b, h, next_row, next_rows);
        RowPrefetcher next_d_o(in.d_o, b, h, next_row, next_rows);
        const auto prefetch = [&]() HWY_ATTR {
          next_q.step();
          next_d_o.step();
        };
        const int64_t at = group * p.q_len + row;
        recompute(q, w.logsumexp + row0 + at, w.delta + row0 + at, s, prefetch);
        accumulate(q, finite_keys, chunk_dq + at * w.dq_stride, static_cast<size_t>(w.dq_stride),
                   s);
      }
    }
    const auto keys = static_cast<size_t>(key_tile.keys);
    store_rows(s.dk, kRowStride, static_cast<float>(p.softmax_scale()), keys, out.dk, b, kv_head,
               key);
    store_rows(s.dv, kRowStride, 1.0f, keys, out.dv, b, kv_head, key);
    if (gate != nullptr) gate->finished({key, key + key_tile.keys});
  }
}

// Computes dQ of these rows as the sum over the chunks, always in the same order.
void reduce_dq(const Problem& p, const Outputs& out, const RowTile& at,
               const BackwardWorkspace& w) {
  const RowTag d;
  const int64_t row0 = BackwardWorkspace::first_row(p, at.batch, at.head);
  for (int64_t row = at.first; row < at.first + at.rows; ++row) {
    float* sum = w.dq + (row0 + row) * w.dq_stride;
    for (int64_t chunk = 1; chunk < w.chunks; ++chunk) {
      const float* part = sum + chunk * w.rows * w.dq_stride;
      for_row(static_cast<size_t>(p.head_dim), [&](size_t c) HWY_ATTR {
        hn::Store(hn::Add(hn::Load(d, sum + c), hn::Load(d, part + c)), d, sum + c);
      });
    }
    store_rows(sum, 0, static_cast<float>(p.softmax_scale()), 1, out.dq, at.batch, at.head, row);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace flashbench::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flashbench::kernels {
namespace {

HWY_EXPORT(row_statistics);
HWY_EXPORT(backward_chunk);
HWY_EXPORT(reduce_dq);

// The number of chunks of keys into which a K/V head is split: only as many as keep the threads
// busy, because each chunk needs its own dQ.
int64_t choose_chunks(const Problem& p, Tile tile, int threads) {
  const int64_t most = std::min<int64_t>(threads, (p.kv_len + tile.keys - 1) / tile.keys);
  const auto idle = [&](int64_t chunks) {  // share of the threads without work in the last round
    const int64_t items = p.batch * p.kv_heads * chunks;
    return 1.0 -
           static_cast<double>(items) / static_cast<double>(round_up<int64_t>(items, threads));
  };
  int64_t best = 1;
  for (int64_t chunks = 2; chunks <= most && idle(best) > 0.1; ++chunks) {
    if (idle(chunks) < idle(best)) best = chunks;
  }
  return best;
}

std::optional<std::string> why_unsupported(const Problem&, const DeviceInfo&) {
  return std::nullopt;
}

std::string variant(const Launch& at) {
  return with_target("cpu_tiled_backward " + name_of(choose_tile(at.problem, at.device.threads)));
}

size_t workspace_bytes(const Launch& at) {
  const Problem& p = at.problem;
  const DeviceInfo& device = at.device;
  Carver carver(nullptr);
  const Tile tile = choose_tile(p, device.threads);
  BackwardWorkspace(carver, p, choose_chunks(p, tile, device.threads));
  for (int i = 0; i < device.threads; ++i) BackwardScratch(carver, tile, p);
  return carver.bytes();
}

int64_t requested_bytes(const Launch& at) {
  const Tile tile = choose_tile(at.problem, at.device.threads);
  const int64_t chunks = choose_chunks(at.problem, tile, at.device.threads);
  return at.problem.sum_of_requests([&](const Problem& p) {
    const int64_t element = element_size(p.dtype);
    int64_t visited_rows = 0;  // of one head, over its key tiles
    for (int64_t key = 0; key < p.kv_len; key += tile.keys) {
      visited_rows += queries_of(p, {key, std::min(tile.keys, p.kv_len - key)}).size();
    }
    visited_rows *= p.q_heads;
    const int64_t keys = 2 * element * (p.key_elements() + p.value_elements());  // K, V; dK, dV
    const int64_t queries =  // Q, dO; dQ += in fp32
        visited_rows * (element * (p.head_dim + p.value_dim()) + 8 * p.head_dim);
    const int64_t statistics =
        8 * visited_rows + 12 * p.query_rows() + 2 * element * p.output_elements();
    const int64_t dq = (8 * chunks + element) * p.query_elements();  // zeroed, reduced, written
    return keys + queries + statistics + dq;
  });
}

void launch(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
            Stream stream) {
  const Problem& p = at.problem;
  ThreadPool& pool = *stream.threads;
  const Tile tile = choose_tile(p, pool.threads());
  Carver carver(workspace);
  const BackwardWorkspace w(carver, p, choose_chunks(p, tile, pool.threads()));
  std::vector<BackwardScratch> scratch;
  for (int i = 0; i < pool.threads(); ++i) scratch.emplace_back(carver, tile, p);

  constexpr int64_t kRows = 256;
  const RowTiles query_rows = RowTiles::of_queries(p, kRows);
  const auto statistics = HWY_DYNAMIC_DISPATCH(row_statistics);
  const auto run_chunk = HWY_DYNAMIC_DISPATCH(backward_chunk);
  const auto reduce = HWY_DYNAMIC_DISPATCH(reduce_dq);
  pool.parallel_for(query_rows.size(), [&](int64_t item, int thread) {
    statistics(p, in, query_rows[item], w, scratch[static_cast<size_t>(thread)]);
  });
  pool.parallel_for(p.batch * p.kv_heads * w.chunks, [&](int64_t item, int thread) {
    const int64_t head = item / w.chunks, chunk = item % w.chunks;
    run_chunk(p, in, out, head / p.kv_heads, head % p.kv_heads, chunk, tile, at.gate, w,
              scratch[static_cast<size_t>(thread)]);
  });
  pool.parallel_for(query_rows.size(),
                    [&](int64_t item, int) { reduce(p, out, query_rows[item], w); });
}

}  // namespace

extern const AttentionKernel kCpuTiledBackward{.name = "cpu_tiled_backward",
                                               .family = "cpu",
                                               .device = DeviceKind::cpu,
                                               .pass = Pass::backward,
                                               .knows_windows = true,
                                               .knows_head_dim_v = true,
                                               .knows_lengths = true,
                                               .knows_gates = true,
                                               .knows_fp32_outputs = true,
                                               .why_unsupported = why_unsupported,
                                               .variant = variant,
                                               .workspace_bytes = workspace_bytes,
                                               .requested_bytes = requested_bytes,
                                               .launch = launch};

}  // namespace flashbench::kernels
#endif
