#include "verify/sampling.h"

#include <algorithm>
#include <set>

#include "inputs/split_mix.h"

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

std::vector<int64_t> query_edges(const Problem& request) {
  return mask_edges(request.q_len, request.kv_len,
                    [&](int64_t query) { return request.visible_keys(query); });
}

std::vector<int64_t> key_edges(const Problem& request) {
  return mask_edges(request.kv_len, request.q_len,
                    [&](int64_t key) { return request.queries_that_see(key); });
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

// The requests with any row to check, and the one with the most pairs among them.
struct Requests {
  std::vector<int64_t> checked;  // ascending
  int64_t largest = 0;           // index in `checked`
  int64_t most_pairs = 0;        // of one head of that
};

template <typename IsChecked>
Requests requests_to_check(const Problem& p, const IsChecked& is_checked) {
  Requests requests;
  if (!p.lengths) return {all_rows(p.batch), p.batch - 1, p.unmasked_pairs()};
  for (int64_t b = 0; b < p.batch; ++b) {
    const Problem request = p.request(b);
    if (!is_checked(request)) continue;
    requests.checked.push_back(b);
    if (requests.checked.size() > 1 && request.unmasked_pairs() <= requests.most_pairs) continue;
    requests.largest = static_cast<int64_t>(requests.checked.size()) - 1;
    requests.most_pairs = request.unmasked_pairs();
  }
  return requests;
}

// A head of a request.
struct RequestHead {
  int64_t batch, head;
};

// Samples `count` of the heads of these requests, in ascending order: the last head of the largest
// request, then the last of all, the first, and random ones.
std::vector<RequestHead> sample_heads(const Requests& requests, int64_t heads, int64_t count,
                                      Random& random) {
  const int64_t total = static_cast<int64_t>(requests.checked.size()) * heads;
  std::set<int64_t> sampled{(requests.largest + 1) * heads - 1};
  for (const int64_t wanted : {total - 1, int64_t{0}}) {
    if (static_cast<int64_t>(sampled.size()) < count) sampled.insert(wanted);
  }
  if (count >= total) {
    const std::vector<int64_t> all = all_rows(total);
    sampled.insert(all.begin(), all.end());
  }
  while (static_cast<int64_t>(sampled.size()) < std::min(count, total)) {
    sampled.insert(random.below(total));
  }
  std::vector<RequestHead> result;
  for (const int64_t index : sampled) {
    result.push_back({requests.checked[static_cast<size_t>(index / heads)], index % heads});
  }
  return result;
}

int64_t count_rows(const std::vector<RowBlock>& blocks) {
  int64_t rows = 0;
  for (const RowBlock& block : blocks) rows += static_cast<int64_t>(block.rows.size());
  return rows;
}

Selection select_forward(const Problem& p, const OracleBudget& budget) {
  const double all_flops = forward_flops(p) * static_cast<double>(p.unmasked_pairs_of_batch()) *
                           static_cast<double>(p.q_heads);
  if (all_flops <= budget.fp64_flops) return {all_query_blocks(p), {}};

  const Requests requests =
      requests_to_check(p, [](const Problem& request) { return request.q_len > 0; });
  const int64_t heads = static_cast<int64_t>(requests.checked.size()) * p.q_heads;
  const double row_flops = forward_flops(p) * static_cast<double>(p.kv_len);
  const auto rows =
      std::max(kMinSampledRows,
               static_cast<int64_t>(std::min(budget.fp64_flops / row_flops,
                                             static_cast<double>(p.q_tokens() * p.q_heads))));
  const int64_t head_count = std::clamp(rows / kMinSampledRows, std::min<int64_t>(2, heads), heads);
  const int64_t rows_per_head = std::max(kMinSampledRows, rows / head_count);

  Selection selection;
  Random random(budget.sample_seed);
  for (const auto& [batch, head] : sample_heads(requests, p.q_heads, head_count, random)) {
    const Problem request = p.request(batch);
    append_query_blocks(selection.queries, p, batch, head,
                        sample_rows(request.q_len, rows_per_head, query_edges(request), random));
  }
  return selection;
}

// Adds these rows of dQ of every query head of the group, and these rows of dK and dV of its key
// head.
void append_group(Selection& selection, const Problem& p, const RequestHead& group,
                  const std::vector<int64_t>& queries, const std::vector<int64_t>& keys) {
  for (int64_t i = 0; i < p.heads_per_kv_head(); ++i) {
    append_query_blocks(selection.queries, p, group.batch, group.head * p.heads_per_kv_head() + i,
                        queries);
  }
  append_key_blocks(selection.keys, group.batch, group.head, keys);
}

Selection select_backward(const Problem& p, const OracleBudget& budget) {
  const Requests requests = requests_to_check(
      p, [](const Problem& request) { return request.q_len > 0 || request.kv_len > 0; });
  const int64_t groups = static_cast<int64_t>(requests.checked.size()) * p.kv_heads;
  const auto heads = static_cast<double>(p.heads_per_kv_head());
  const double pair = (query_gradient_flops(p) + key_gradient_flops(p)) * heads;
  const double largest = pair * static_cast<double>(requests.most_pairs);
  const double all = pair * static_cast<double>(p.unmasked_pairs_of_batch() * p.kv_heads);
  const auto affordable = static_cast<int64_t>(
      all <= budget.fp64_flops
          ? static_cast<double>(groups)
          : std::min(budget.fp64_flops / std::max(largest, 1.0), static_cast<double>(groups)));

  Selection selection;
  Random random(budget.sample_seed);
  if (affordable >= 1) {
    for (const RequestHead& group : sample_heads(requests, p.kv_heads, affordable, random)) {
      append_group(selection, p, group, all_rows(p.q_len_of(group.batch)),
                   all_rows(p.kv_len_of(group.batch)));
    }
    return selection;
  }
  const RequestHead group{requests.checked[static_cast<size_t>(requests.largest)], p.kv_heads - 1};
  const Problem one = p.request(group.batch);
  const auto rows_for = [&](double flops, int64_t length) {
    const double row_flops = flops * heads * static_cast<double>(length);
    return std::max(kMinSampledRows, static_cast<int64_t>(budget.fp64_flops / 2 / row_flops));
  };
  append_group(
      selection, p, group,
      sample_rows(one.q_len, rows_for(query_gradient_flops(p), one.kv_len), query_edges(one),
                  random),
      sample_rows(one.kv_len, rows_for(key_gradient_flops(p), one.q_len), key_edges(one), random));
  return selection;
}

}  // namespace

Selection select_rows(const Problem& p, const OracleBudget& budget) {
  const bool forward = p.pass == Pass::forward;
  Selection selection = forward ? select_forward(p, budget) : select_backward(p, budget);
  selection.sampled = count_rows(selection.queries) < p.q_tokens() * p.q_heads ||
                      (!forward && count_rows(selection.keys) < p.kv_tokens() * p.kv_heads);
  return selection;
}

}  // namespace flashbench::verify
