#include "verify/sampling.h"

#include <algorithm>
#include <set>

#include "device/split_mix.h"

namespace flashbench::verify {

namespace {

// FLOPs for each (query, key) pair, 2 for each dimension that a GEMM goes over.
double pair_flops(int64_t gemm_dims) {
  return 2.0 * static_cast<double>(gemm_dims);
}
double forward_flops(const Problem& p) {
  return pair_flops(p.head_dim + 2 * p.value_dim());  // S; O, its bound
}
double query_gradient_flops(const Problem& p) {
  return pair_flops(4 * p.head_dim + p.value_dim());  // S, dQ, two bounds of it; dP
}
double key_gradient_flops(const Problem& p) {
  return pair_flops(3 * p.head_dim + 3 * p.value_dim());  // S, dK, its bound; dP, dV, its bound
}

constexpr int64_t kMinSampledRows = 16;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  int64_t below(int64_t limit) {
    state_ += kSplitMixIncrement;
    return static_cast<int64_t>(split_mix(state_) % static_cast<uint64_t>(limit));
  }

 private:
  uint64_t state_;
};

// Both rows, of [0, length), wherever an end of `seen(row)` starts to move or stops. It is a range
// of [0, others) whose ends rise with the row. May name rows that do not exist.
template <typename Seen>
std::vector<int64_t> mask_edges(int64_t length, int64_t others, const Seen& seen) {
  std::vector<int64_t> edges;
  const auto add = [&](const auto& is_before) {
    int64_t row = 0, end = length;  // of the rows that may be the first behind the edge
    while (row < end) {
      const int64_t middle = row + (end - row) / 2;
      if (is_before(middle)) {
        row = middle + 1;
      } else {
        end = middle;
      }
    }
    edges.insert(edges.end(), {row - 1, row});
  };
  add([&](int64_t row) { return seen(row).end == 0; });
  add([&](int64_t row) { return seen(row).first == 0; });
  add([&](int64_t row) { return seen(row).end < others; });
  add([&](int64_t row) { return seen(row).first < others; });
  return edges;
}

std::vector<int64_t> query_edges(const Problem& p) {
  return mask_edges(p.q_len, p.kv_len, [&](int64_t query) { return p.visible_keys(query); });
}

std::vector<int64_t> key_edges(const Problem& p) {
  return mask_edges(p.kv_len, p.q_len, [&](int64_t key) { return p.queries_that_see(key); });
}

// `count` rows of [0, length): the ends, the edges of the mask, the rows around 64 and 128, then by
// turns a row beside a multiple of 64 and any row.
std::vector<int64_t> sample_rows(int64_t length, int64_t count, const std::vector<int64_t>& edges,
                                 Random& random) {
  if (count >= length) return all_rows(length);
  std::set<int64_t> rows;
  const auto add = [&](int64_t row) {
    if (row >= 0 && row < length && static_cast<int64_t>(rows.size()) < count) rows.insert(row);
  };
  for (const int64_t row : {int64_t{0}, length - 1}) add(row);
  for (const int64_t row : edges) add(row);
  for (const int64_t row : {int64_t{63}, int64_t{64}, int64_t{65}, int64_t{127}, int64_t{128},
                            int64_t{129}, length - 2}) {
    add(row);
  }
  while (static_cast<int64_t>(rows.size()) < count) {
    add(64 * random.below(length / 64 + 1) + random.below(3) - 1);
    add(random.below(length));
  }
  return {rows.begin(), rows.end()};
}

// Samples `count` of `total` heads, in ascending order: the last, the first, then random ones.
std::vector<int64_t> sample_heads(int64_t total, int64_t count, Random& random) {
  if (count >= total) return all_rows(total);
  std::set<int64_t> heads{total - 1};
  if (count > 1) heads.insert(0);
  while (static_cast<int64_t>(heads.size()) < count) heads.insert(random.below(total));
  return {heads.begin(), heads.end()};
}

int64_t count_rows(const std::vector<RowBlock>& blocks) {
  int64_t rows = 0;
  for (const RowBlock& block : blocks) rows += static_cast<int64_t>(block.rows.size());
  return rows;
}

Selection select_forward(const Problem& p, const OracleBudget& budget) {
  const int64_t heads = p.batch * p.q_heads;
  const double head_flops = forward_flops(p) * static_cast<double>(p.unmasked_pairs());
  if (head_flops * static_cast<double>(heads) <= budget.fp64_flops) {
    return {all_query_blocks(p), {}};
  }
  const double row_flops = forward_flops(p) * static_cast<double>(p.kv_len);
  const auto rows = std::max(kMinSampledRows,
                             static_cast<int64_t>(std::min(budget.fp64_flops / row_flops,
                                                           static_cast<double>(p.query_rows()))));
  const int64_t head_count = std::clamp(rows / kMinSampledRows, std::min<int64_t>(2, heads), heads);
  const int64_t rows_per_head = std::max(kMinSampledRows, rows / head_count);

  Selection selection;
  Random random(budget.sample_seed);
  for (int64_t head : sample_heads(heads, head_count, random)) {
    append_query_blocks(selection.queries, p, head / p.q_heads, head % p.q_heads,
                        sample_rows(p.q_len, rows_per_head, query_edges(p), random));
  }
  return selection;
}

// Adds these rows of dQ of every query head of the group, and these rows of dK and dV of its key
// head.
void append_group(Selection& selection, const Problem& p, int64_t group,
                  const std::vector<int64_t>& queries, const std::vector<int64_t>& keys) {
  const int64_t batch = group / p.kv_heads, kv_head = group % p.kv_heads;
  for (int64_t i = 0; i < p.heads_per_kv_head(); ++i) {
    append_query_blocks(selection.queries, p, batch, kv_head * p.heads_per_kv_head() + i, queries);
  }
  append_key_blocks(selection.keys, batch, kv_head, keys);
}

Selection select_backward(const Problem& p, const OracleBudget& budget) {
  const int64_t groups = p.batch * p.kv_heads;
  const auto heads = static_cast<double>(p.heads_per_kv_head());
  const double group_flops = (query_gradient_flops(p) + key_gradient_flops(p)) * heads *
                             static_cast<double>(p.unmasked_pairs());
  const auto affordable = static_cast<int64_t>(
      std::min(budget.fp64_flops / std::max(group_flops, 1.0), static_cast<double>(groups)));

  Selection selection;
  Random random(budget.sample_seed);
  if (affordable >= 1) {
    for (int64_t group : sample_heads(groups, affordable, random)) {
      append_group(selection, p, group, all_rows(p.q_len), all_rows(p.kv_len));
    }
    return selection;
  }
  const auto rows_for = [&](double flops, int64_t length) {
    const double row_flops = flops * heads * static_cast<double>(length);
    return std::max(kMinSampledRows, static_cast<int64_t>(budget.fp64_flops / 2 / row_flops));
  };
  append_group(
      selection, p, groups - 1,
      sample_rows(p.q_len, rows_for(query_gradient_flops(p), p.kv_len), query_edges(p), random),
      sample_rows(p.kv_len, rows_for(key_gradient_flops(p), p.q_len), key_edges(p), random));
  return selection;
}

}  // namespace

Selection select_rows(const Problem& p, const OracleBudget& budget) {
  const bool forward = p.pass == Pass::forward;
  Selection selection = forward ? select_forward(p, budget) : select_backward(p, budget);
  selection.sampled = count_rows(selection.queries) < p.query_rows() ||
                      (!forward && count_rows(selection.keys) < p.batch * p.kv_heads * p.kv_len);
  return selection;
}

}  // namespace flashbench::verify
