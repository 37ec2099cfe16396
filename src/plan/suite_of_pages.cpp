#include "plan/suite_of_pages.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <utility>

#include "plan/lengths_cases.h"

namespace flashbench {

namespace {

using Cases = std::vector<Case>;

// Below, at and above the tiles that kernels have.
constexpr std::array<int64_t, 7> kTriedPageSizes{1, 8, 16, 48, 64, 128, 256};

// Forward cases in pages of this size; the order of dimensions and of pages by turns.
class PagesCases {
 public:
  explicit PagesCases(int64_t page_size) { cases_.base().problem.page_size = page_size; }

  Case& base() { return cases_.base(); }

  PagesCases& with(std::vector<Mask> masks, std::vector<Layout> layouts) {
    cases_.with(std::move(masks), std::move(layouts));
    return *this;
  }

  // V spells the request, so that another's page shows.
  PagesCases& add(const Requests& requests) { return add(Distribution::one_hot, requests); }

  PagesCases& add(Distribution distribution, const Requests& requests) {
    Problem& p = base().problem;
    p.kv_layout = kKvLayouts[turn_ % kKvLayouts.size()];
    p.page_order = kPageOrders[turn_ / kKvLayouts.size() % kPageOrders.size()];
    ++turn_;
    cases_.add(Pass::forward, distribution, requests);
    return *this;
  }

  // The cases so far, behind those of `to`.
  void move_to(Cases& to) && {
    Cases taken = std::move(cases_).take();
    std::move(taken.begin(), taken.end(), std::back_inserter(to));
  }

 private:
  LengthsCases cases_;
  size_t turn_ = 0;
};

// A page more and less than a multiple of the page size, queries more and fewer than keys.
Requests around(int64_t page_size) {
  return {{3, page_size}, {20, page_size + 1}, {1, 2 * page_size - 1}, {5, 3 * page_size}, {9, 1}};
}

Cases page_sizes() {
  Cases cases;
  for (const int64_t page_size : kTriedPageSizes) {
    for (const int64_t head_dim : {24, 40, 64, 128, 192, 256}) {
      PagesCases of_size(page_size);
      of_size.base().problem.head_dim = head_dim;
      of_size.with({Mask::none, Mask::causal_bottom_right}, {Layout::ragged, Layout::bshd});
      of_size.add(around(page_size)).add({{2, 300}, {1, 301}, {1, 300}});
      std::move(of_size).move_to(cases);
    }
  }
  return cases;
}

// As without pages: no keys first, in the middle, last, two in a row, and in all requests.
Cases empty_page_lists() {
  const RequestLengths some{33, 70}, few{5, 3}, no_keys{20, 0}, no_queries{0, 40};
  Cases cases;
  for (const int64_t page_size : {1, 16, 256}) {
    PagesCases of_size(page_size);
    for (const RequestLengths& empty : {no_keys, no_queries}) {
      of_size.add({empty, some, few}).add({some, empty, few}).add({some, few, empty});
      of_size.add({some, empty, empty, few});
    }
    of_size.add({no_keys, {1, 0}});
    std::move(of_size).move_to(cases);
  }
  return cases;
}

// What is behind a request's last key in its page would outweigh all other keys, or count as much;
// queries that see no key.
Cases ends_of_pages() {
  Cases cases;
  for (const int64_t page_size : kTriedPageSizes) {
    PagesCases of_size(page_size);
    of_size.with({kMasks.begin(), kMasks.end()}, {Layout::ragged});
    const Requests requests{{3, 257}, {2, 255}, {40, 1}, {9, 511}, {1, 127}};
    for (const Distribution distribution :
         {Distribution::low_logsumexp, Distribution::equal_scores, Distribution::huge_scores}) {
      of_size.add(distribution, requests);
    }
    of_size.add(Distribution::nan_v_padding, {{3, 65}, {1, 127}, {5, 30}});
    std::move(of_size).move_to(cases);
  }
  return cases;
}

// The diagonal at every offset of a page; 1 to 16 queries.
Cases diagonals_over_pages() {
  Requests behind, decoding;
  for (int64_t keys = 1; keys <= 130; ++keys) behind.push_back({5, keys});
  for (int64_t queries = 1; queries <= 16; ++queries) decoding.push_back({queries, 140 - queries});
  Cases cases;
  for (const int64_t page_size : kTriedPageSizes) {
    PagesCases of_size(page_size);
    of_size.with({Mask::causal_bottom_right}, {Layout::ragged, Layout::bshd});
    of_size.add(behind).add(decoding);
    std::move(of_size).move_to(cases);
  }
  return cases;
}

// One request of each number of keys, odd and even ones apart: a page or a split of any size ends
// at each of them.
Cases every_number_of_keys() {
  Requests requests[2];
  for (int64_t keys = 1; keys <= 1100; ++keys) requests[keys % 2].push_back({1, keys});
  Cases cases;
  for (const int64_t page_size : {16, 48}) {
    PagesCases of_size(page_size);
    of_size.base().problem.head_dim = 24;  // spells the number of any of 4096 keys
    of_size.base().problem.q_heads = 2;
    of_size.base().problem.kv_heads = 1;
    of_size.with({Mask::none}, {Layout::bshd}).add(requests[0]).add(requests[1]);
    std::move(of_size).move_to(cases);
  }
  return cases;
}

Cases many_page_lists() {
  Cases cases;
  for (const int64_t count : {991, 993, 1025, 4096}) {
    Requests requests;
    for (int64_t i = 0; i < count; ++i) requests.push_back({i % 2, 7 * i % 41});
    PagesCases of_count(16);
    of_count.base().problem.head_dim = 16;
    of_count.with({Mask::causal_bottom_right}, {Layout::ragged}).add(requests);
    std::move(of_count).move_to(cases);
  }
  return cases;
}

// Query heads on each K/V head.
Cases groups_over_pages() {
  Cases cases;
  for (const int64_t group : {1, 3, 5, 7, 16, 71}) {
    PagesCases of_group(16);
    of_group.base().problem.kv_heads = 2;
    of_group.base().problem.q_heads = 2 * group;
    of_group.with({Mask::causal_bottom_right}, {Layout::ragged, Layout::bhsd});
    of_group.add({{1, 70}, {4, 129}, {17, 16}});
    std::move(of_group).move_to(cases);
  }
  return cases;
}

// One request has almost all of the pages.
Cases one_long_page_list() {
  PagesCases cases(16);
  cases.base().problem.head_dim = 24;
  cases.base().problem.q_heads = 2;
  cases.base().problem.kv_heads = 1;
  cases.with({Mask::none, Mask::causal_bottom_right}, {Layout::ragged});
  cases.add({{1, 1}, {1, 131072}, {1, 1}, {0, 5}});
  Cases taken;
  std::move(cases).move_to(taken);
  return taken;
}

using TableRows = std::vector<std::vector<int32_t>>;

std::shared_ptr<const BlockTable> table(int64_t pages, const TableRows& rows) {
  size_t width = 1;
  for (const std::vector<int32_t>& row : rows) width = std::max(width, row.size() + 1);
  BlockTable made(static_cast<int64_t>(rows.size()), static_cast<int64_t>(width), pages);
  for (size_t b = 0; b < rows.size(); ++b) {
    for (size_t i = 0; i < rows[b].size(); ++i) {
      made.at(static_cast<int64_t>(b), static_cast<int64_t>(i)) = rows[b][i];
    }
  }
  return std::make_shared<const BlockTable>(std::move(made));
}

// A prefix that all requests share, shorter and longer than a page and than some requests; and
// tables in which requests are the same, a part of each other, or have one page several times.
Cases shared_pages() {
  const Requests requests{{5, 100}, {1, 77}, {9, 20}, {3, 100}, {2, 0}};
  Cases cases;
  for (const int64_t page_size : {1, 16, 64}) {
    for (const int64_t prefix : {10, 50, 64, 1000}) {
      PagesCases of_prefix(page_size);
      of_prefix.base().problem.shared_prefix = prefix;
      of_prefix.with({Mask::none, Mask::causal_bottom_right}, {Layout::ragged, Layout::bshd});
      of_prefix.add(Distribution::normal, requests);
      std::move(of_prefix).move_to(cases);
    }
  }
  PagesCases of_table(32);
  of_table.with({Mask::none, Mask::causal_bottom_right}, {Layout::ragged});
  for (const auto& rows :
       std::vector<TableRows>{{{4, 0, 3, 1}, {4, 0, 3}, {0}, {4, 0, 3, 1}, {}},
                              {{2, 2, 2, 2}, {1, 2, 1}, {2}, {3, 2, 1, 0}, {}}}) {
    of_table.base().problem.block_table = table(6, rows);
    of_table.add(Distribution::normal, requests);
  }
  std::move(of_table).move_to(cases);
  return cases;
}

// NaN in a key that counts, and windows, a head_dim of V's own and placements.
Cases pages_with_other_axes() {
  const Requests requests{{33, 70}, {0, 9}, {140, 65}, {1, 300}};
  const std::vector<Layout> layouts{Layout::ragged, Layout::bshd};
  Cases cases;
  for (const int64_t page_size : {1, 16, 48, 128}) {
    PagesCases spoilt(page_size), windows(page_size), dims(page_size), placements(page_size);
    spoilt.with({kMasks.begin(), kMasks.end()}, {Layout::ragged});
    for (const Distribution distribution :
         {Distribution::nan_key, Distribution::inf_key, Distribution::nan_unseen}) {
      spoilt.add(distribution, {{70, 90}, {0, 30}, {20, 150}});
    }
    windows.base().problem.window_left = 63;
    windows.with({kMasks.begin(), kMasks.end()}, layouts).add(requests);
    windows.add(Distribution::nan_unseen, requests);
    dims.base().problem.head_dim = 56;
    dims.base().problem.set_value_dim(40);
    dims.with({Mask::causal_bottom_right}, layouts).add(requests);
    placements.with({Mask::causal_bottom_right}, layouts);
    for (const Placement placement : {Placement::strided, Placement::offset}) {
      placements.base().placement = placement;
      placements.add(requests).add(requests);  // in both orders of dimensions
    }
    for (PagesCases* more : {&spoilt, &windows, &dims, &placements}) {
      std::move(*more).move_to(cases);
    }
  }
  return cases;
}

}  // namespace

std::vector<SuiteGroup> groups_of_pages() {
  return {
      {"page sizes",
       "pages below, at and above a tile: O is one row of V, of its own request and its key's page",
       page_sizes()},
      {"empty page lists", "requests without keys have no page: O is 0, the logsumexp -infinity",
       empty_page_lists()},
      {"ends of pages",
       "NaN behind a request's last key in its page does not count, nor the scores",
       ends_of_pages()},
      {"diagonals over pages", "a few queries behind 1 to 139 keys, in pages of each size",
       diagonals_over_pages()},
      {"every number of keys", "1 to 1100 keys, each once", every_number_of_keys()},
      {"many page lists", "991, 993, 1025 and 4096 requests", many_page_lists()},
      {"groups over pages", "1, 3, 5, 7, 16 and 71 query heads on a K/V head", groups_over_pages()},
      {"long page list", "one long request among short ones", one_long_page_list()},
      {"shared pages", "requests share pages, in part and whole, at any place of their keys",
       shared_pages()},
      {"pages and other axes", "spoilt keys, windows, a head_dim of V's own and placements",
       pages_with_other_axes()}};
}

Case large_pool() {
  Case item;
  item.inputs.distribution = Distribution::one_hot;
  item.problem = {.dtype = Dtype::fp16, .q_heads = 8, .kv_heads = 8, .head_dim = 128};
  item.problem.set_lengths(std::make_shared<const Lengths>(Requests{{1, 700}, {1, 300}, {3, 40}}));
  item.problem.page_size = 256;
  constexpr int32_t kPages = 8704;  // 2^31 elements are 8192
  item.problem.block_table = table(kPages, {{kPages - 1, 0, 8200}, {kPages - 2, 8191}, {8192}});
  return item;
}

}  // namespace flashbench
