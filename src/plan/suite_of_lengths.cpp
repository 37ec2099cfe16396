#include "plan/suite_of_lengths.h"

#include <utility>

#include "plan/lengths_cases.h"

namespace flashbench {

namespace {

// Without keys: first, in the middle, last, two in a row, and all. The same of queries.
std::vector<Case> empty_requests() {
  const RequestLengths some{33, 70}, few{5, 3}, no_keys{20, 0}, no_queries{0, 40}, nothing{0, 0};
  LengthsCases cases;
  for (const RequestLengths& empty : {no_keys, no_queries, nothing}) {
    cases.add({empty, some, few}).add({some, empty, few}).add({some, few, empty});
    cases.add({some, empty, empty, few});
  }
  cases.add({no_keys, {1, 0}});
  return std::move(cases).take();
}

// More queries than keys in some, fewer in others, and as many; one query; around a tile's edge.
std::vector<Case> mixed_requests() {
  LengthsCases cases;
  cases.add({{300, 70}, {70, 300}, {64, 64}, {1, 257}, {257, 1}});
  cases.add({{1, 1}, {63, 64}, {65, 63}, {128, 129}, {129, 127}, {1, 1}});
  cases.add({{100, 100}});  // a batch of one
  return std::move(cases).take();
}

// A few queries at the end of 1 to 130 keys: the diagonal crosses a tile at every offset.
std::vector<Case> diagonals() {
  LengthsCases cases;
  Requests requests;
  for (int64_t keys = 1; keys <= 130; ++keys) requests.push_back({5, keys});
  cases.with({Mask::causal_bottom_right}, {Layout::ragged, Layout::bshd}).add(requests);
  Requests decoding;
  for (int64_t queries = 1; queries <= 16; ++queries) decoding.push_back({queries, 140 - queries});
  cases.add(decoding);
  return std::move(cases).take();
}

// Keys behind a request's last must not count, without a causal mask that would hide them: their
// scores would be above all others, or as high.
std::vector<Case> ends_of_keys() {
  LengthsCases cases;
  cases.with({Mask::none}, {kLayouts.begin(), kLayouts.end()});
  const Requests requests{{3, 257}, {2, 255}, {4, 1}, {65, 511}, {1, 127}};
  for (const Distribution distribution :
       {Distribution::low_logsumexp, Distribution::equal_scores, Distribution::huge_scores}) {
    for (const Pass pass : kPasses) cases.add(pass, distribution, requests);
  }
  return std::move(cases).take();
}

// Around the numbers that a warp's prefix sum over 32 lanes or a block of 1024 threads takes.
std::vector<Case> many_requests() {
  LengthsCases cases;
  cases.base().problem.head_dim = 16;
  cases.with({Mask::causal_bottom_right}, {Layout::ragged, Layout::bshd});
  for (const int64_t count : {991, 993, 1025}) {
    Requests requests;
    for (int64_t i = 0; i < count; ++i) requests.push_back({i % 4, 7 * i % 41});
    cases.add(requests);
  }
  Requests most;
  for (int64_t i = 0; i < 4096; ++i) most.push_back({i % 2, 7 * i % 41});
  cases.with({Mask::causal_bottom_right}, {Layout::ragged});
  cases.add(Pass::forward, Distribution::one_hot, most);
  return std::move(cases).take();
}

// One request has almost all of the work. Head_dim 24 spells the number of any of its keys.
std::vector<Case> one_long_request() {
  LengthsCases cases;
  cases.base().problem.head_dim = 24;
  cases.base().problem.q_heads = 2;
  cases.base().problem.kv_heads = 1;
  cases.with({Mask::none, Mask::causal_bottom_right}, {Layout::ragged});
  cases.add({{1, 1}, {1, 131072}, {1, 1}, {0, 5}});
  cases.add({{2, 3}, {700, 1000}, {1, 1}});
  return std::move(cases).take();
}

// Query heads on each K/V head, of requests and of a batch of equal lengths that decodes: rows of a
// tile that no query head fills, and tiles between two of them.
std::vector<Case> groups_of_requests() {
  LengthsCases cases;
  cases.with({Mask::causal_bottom_right}, {Layout::ragged, Layout::bhsd});
  for (const int64_t group : {1, 3, 5, 7, 16, 17, 71}) {
    cases.base().problem.kv_heads = 2;
    cases.base().problem.q_heads = 2 * group;
    cases.add(Pass::forward, Distribution::one_hot, {{1, 70}, {4, 129}, {17, 16}});
    cases.add(Pass::forward, Distribution::one_hot, {{1, 300}, {1, 300}});
  }
  return std::move(cases).take();
}

// One request of each number of keys, odd and even ones apart: a split of any size ends at each.
std::vector<Case> every_number_of_keys_without_pages() {
  Requests requests[2];
  for (int64_t keys = 1; keys <= 1100; ++keys) requests[keys % 2].push_back({1, keys});
  LengthsCases cases;
  cases.base().problem.head_dim = 24;  // spells the number of any of 4096 keys
  cases.base().problem.q_heads = 2;
  cases.base().problem.kv_heads = 1;
  cases.with({Mask::none}, {Layout::ragged});
  for (const Requests& half : requests) {
    cases.add(Pass::forward, Distribution::one_hot, half);
  }
  return std::move(cases).take();
}

// Sessions of as many requests with the same longest lengths, one after the other: a plan, a grid
// or a counter that outlives its session is that of the first. Long, short, long again; then other
// strides and another scale of the same lengths.
std::vector<Case> one_after_another() {
  const Requests longs{{1, 700}, {1, 700}, {1, 650}, {1, 700}};
  const Requests shorts{{1, 3}, {1, 700}, {1, 1}, {1, 0}};
  std::vector<Case> cases;
  for (const bool paged : {false, true}) {
    LengthsCases in_turn;
    in_turn.with({Mask::causal_bottom_right}, {Layout::ragged});
    Case& base = in_turn.base();
    if (paged) base.problem.page_size = 16;
    const auto add = [&](const Requests& requests) {
      for (int turn = 0; turn < 3; ++turn) {  // each dtype
        in_turn.add(Pass::forward, Distribution::normal, requests);
      }
      ++base.inputs.seed;  // another case
    };
    for (const Requests& requests : {longs, shorts, longs}) add(requests);
    base.placement = Placement::strided;
    add(longs);
    base.placement = Placement::contiguous;
    for (const double scale : {0.5, -1.0}) {
      base.problem.scale = scale;
      add(longs);
    }
    base.problem.scale.reset();
    add(longs);
    std::vector<Case> taken = std::move(in_turn).take();
    cases.insert(cases.end(), taken.begin(), taken.end());
  }
  return cases;
}

std::vector<Case> spoilt_requests() {
  LengthsCases cases;
  for (const Distribution distribution :
       {Distribution::nan_key, Distribution::inf_key, Distribution::nan_unseen}) {
    for (const Pass pass : kPasses) {
      cases.add(pass, distribution, {{70, 90}, {0, 30}, {20, 150}});
    }
  }
  cases.with({kMasks.begin(), kMasks.end()}, {Layout::bshd});
  for (const Pass pass : kPasses) {
    cases.add(pass, Distribution::nan_v_padding, {{7, 9}, {0, 30}, {20, 65}});
  }
  return std::move(cases).take();
}

std::vector<Case> lengths_with_other_axes() {
  const Requests requests{{33, 70}, {0, 9}, {140, 65}, {1, 300}};
  LengthsCases windows, dims, placements;
  windows.base().problem.window_left = 63;
  windows.add(requests);
  windows.base().problem.window_right = 3;
  windows.with({Mask::none}, {kLayouts.begin(), kLayouts.end()}).add(requests);
  dims.base().problem.head_dim = 56;
  dims.base().problem.set_value_dim(40);
  dims.with({Mask::causal_bottom_right}, {kLayouts.begin(), kLayouts.end()}).add(requests);
  std::vector<Case> cases = std::move(windows).take();
  for (const Placement placement : {Placement::strided, Placement::offset}) {
    placements.base().placement = placement;
    placements.with({Mask::causal_bottom_right}, {kLayouts.begin(), kLayouts.end()}).add(requests);
  }
  for (LengthsCases* more : {&dims, &placements}) {
    std::vector<Case> taken = std::move(*more).take();
    cases.insert(cases.end(), taken.begin(), taken.end());
  }
  return cases;
}

}  // namespace

std::vector<SuiteGroup> groups_of_lengths() {
  return {
      {"empty requests",
       "requests without keys or queries, anywhere in a batch: O is 0, the logsumexp -infinity",
       empty_requests()},
      {"mixed requests", "q_len above, below and at kv_len in one batch: each has its own mask",
       mixed_requests()},
      {"diagonals", "a few queries behind 1 to 139 keys: the diagonal at every offset of a tile",
       diagonals()},
      {"ends of keys", "nothing behind a request's last key counts, without a mask to hide it",
       ends_of_keys()},
      {"many requests", "991, 993, 1025 and 4096 requests", many_requests()},
      {"groups of requests", "1, 3, 5, 7, 16, 17 and 71 query heads on a K/V head",
       groups_of_requests()},
      {"every number of keys, without pages", "1 to 1100 keys, each once",
       every_number_of_keys_without_pages()},
      {"one after another",
       "the same shapes with other lengths, strides and scales, in the same process",
       one_after_another()},
      {"long request", "one long request among short ones", one_long_request()},
      {"NaN in requests", "a NaN or infinite key, and keys that no query sees, in one request",
       spoilt_requests()},
      {"lengths and other axes", "windows, a head_dim of V's own and placements",
       lengths_with_other_axes()}};
}

}  // namespace flashbench
