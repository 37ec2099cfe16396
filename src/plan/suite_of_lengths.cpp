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
      {"many requests", "991, 993 and 1025 requests", many_requests()},
      {"long request", "one long request among short ones", one_long_request()},
      {"NaN in requests", "a NaN or infinite key, and keys that no query sees, in one request",
       spoilt_requests()},
      {"lengths and other axes", "windows, a head_dim of V's own and placements",
       lengths_with_other_axes()}};
}

}  // namespace flashbench
