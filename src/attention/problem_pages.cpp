// The paged K/V cache of a problem: how many pages it has, which of them requests share, and what
// can be wrong with them.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "attention/pages.h"
#include "attention/problem.h"

namespace flashbench {

namespace {

constexpr int64_t kUsedPagesOfUnused = 4;  // the pool has one unused page for so many used ones
constexpr double kMostPages = 0x1p30;      // used ones: any pool's pages are int32
constexpr double kMostPoolElements = 0x1p40;

int64_t pages_in(int64_t rows, int64_t page_size) {
  return rows / page_size + (rows % page_size == 0 ? 0 : 1);
}

// The number of rows that are in any of these ranges.
int64_t rows_in_any(std::vector<RowRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const RowRange& a, const RowRange& b) { return a.first < b.first; });
  int64_t count = 0, counted_to = 0;
  for (const RowRange& range : ranges) {
    count += std::max<int64_t>(0, range.end - std::max(range.first, counted_to));
    counted_to = std::max(counted_to, range.end);
  }
  return count;
}

}  // namespace

Problem without_pages(Problem same) {
  same.page_size = same.shared_prefix = std::nullopt;
  same.kv_layout = KvLayout::paged_nhd;
  same.page_order = PageOrder::shuffled;
  same.block_table = nullptr;
  return same;
}

int64_t Problem::pages_with(RowRange rows) const {
  if (!is_paged() || rows.empty()) return 0;
  return pages_in(rows.end, *page_size) - rows.first / *page_size;
}

int64_t Problem::shared_pages(int64_t rows) const {
  return std::min(shared_prefix.value_or(0), rows) / *page_size;
}

bool Problem::shares_pages() const {
  return is_paged() && used_pages() < sum_by_number([&](int64_t b) { return pages_of(b); });
}

int64_t Problem::used_pages() const {
  if (block_table) {
    std::unordered_set<int32_t> used;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < pages_of(b); ++i) used.insert(block_table->at(b, i));
    }
    return static_cast<int64_t>(used.size());
  }
  return shared_pages(kv_len) +
         sum_by_number([&](int64_t b) { return pages_of(b) - shared_pages(kv_len_of(b)); });
}

int64_t Problem::pool_pages() const {
  if (block_table) return block_table->pages();
  const int64_t used = used_pages();
  return used + pages_in(used, kUsedPagesOfUnused);
}

int64_t Problem::table_width() const {
  return block_table ? block_table->width() : pages_in(kv_len, *page_size) + 1;
}

BlockTable Problem::linear_table() const {
  BlockTable table(batch, table_width(), pool_pages());
  auto next = static_cast<int32_t>(shared_pages(kv_len));
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t shared = shared_pages(kv_len_of(b));
    for (int64_t i = 0; i < pages_of(b); ++i) {
      table.at(b, i) = block_table  ? block_table->at(b, i)
                       : i < shared ? static_cast<int32_t>(i)
                                    : next++;
    }
  }
  return table;
}

int64_t Problem::distinct_rows(const std::function<RowRange(int64_t)>& rows) const {
  if (block_table) {
    std::vector<RowRange> in_pool;
    for (int64_t b = 0; b < batch; ++b) {
      const RowRange own = rows(b);
      for (int64_t i = own.first / *page_size; i * *page_size < own.end; ++i) {
        const int64_t behind = (block_table->at(b, i) - i) * *page_size;
        in_pool.push_back({std::max(own.first, i * *page_size) + behind,
                           std::min(own.end, (i + 1) * *page_size) + behind});
      }
    }
    return rows_in_any(std::move(in_pool));
  }
  std::vector<RowRange> in_prefix;
  const int64_t apart = sum_by_number([&](int64_t b) {
    const int64_t prefix = shared_pages(kv_len_of(b)) * *page_size;
    const RowRange own = rows(b);
    in_prefix.push_back({std::min(own.first, prefix), std::min(own.end, prefix)});
    return own.end - std::max(own.first, std::min(own.end, prefix));
  });
  return apart + rows_in_any(std::move(in_prefix));
}

// Used ones, if none are shared. In double, because sizes are not bounded yet.
double Problem::most_pages() const {
  return sum_by_number([&](int64_t b) { return static_cast<double>(pages_of(b)); });
}

std::optional<std::string> Problem::invalid_pages() const {
  if (!is_paged()) {
    if (kv_layout == KvLayout::paged_nhd && page_order == PageOrder::shuffled && !shared_prefix &&
        !block_table) {
      return std::nullopt;
    }
    return "kv_layout, page_order, shared_prefix and block_table need page_size";
  }
  if (pass == Pass::backward) return "a paged K/V cache is for pass forward, got backward";
  if (*page_size < 1 || shared_prefix.value_or(1) < 1) {
    return fmt::format("page_size and shared_prefix must be at least 1, got {} and {}", *page_size,
                       shared_prefix.value_or(1));
  }
  const double pages = block_table ? static_cast<double>(block_table->pages()) : most_pages();
  const double elements = pages * static_cast<double>(*page_size) * static_cast<double>(kv_heads) *
                          static_cast<double>(std::max(head_dim, value_dim()));
  if (pages > kMostPages || elements > kMostPoolElements) {
    return fmt::format(
        "expected pools of at most 2^30 pages and 2^40 elements, got up to {:.4g} pages of {} rows "
        "and {:.4g} elements",
        pages, *page_size, elements);
  }
  return block_table ? invalid_table() : std::nullopt;
}

std::optional<std::string> Problem::invalid_table() const {
  if (block_table->pages() == 0 && kv_tokens() > 0) {
    return "block_table: expected the number of pages of the pool";
  }
  if (block_table->requests() != batch) {
    return fmt::format("block_table: expected a row for each of {} requests, found {}", batch,
                       block_table->requests());
  }
  for (int64_t b = 0; b < batch; ++b) {
    if (pages_of(b) > block_table->width()) {
      return fmt::format("block_table: request {} has {} keys and needs {} pages of {}, found {}",
                         b, kv_len_of(b), pages_of(b), *page_size, block_table->width());
    }
    for (int64_t i = 0; i < pages_of(b); ++i) {
      const int32_t page = block_table->at(b, i);
      if (page >= 0 && page < block_table->pages()) continue;
      return fmt::format("block_table: request {}, page {}: expected a page from 0 to {}, found {}",
                         b, i, block_table->pages() - 1, page);
    }
  }
  return std::nullopt;
}

}  // namespace flashbench
