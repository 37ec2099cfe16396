#include "plan/suite_of_byte_caches.h"

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "plan/lengths_cases.h"

namespace flashbench {

namespace {

constexpr std::array kCacheFactors{Descale::per_head, Descale::per_tensor};
constexpr std::array kCacheDtypes{Dtype::bf16, Dtype::fp16};

// Builds cases of one distribution: query heads in groups of two; each dtype of Q, and each kind of
// factors, by turns.
class CacheCases {
 public:
  explicit CacheCases(Distribution distribution) {
    base_.problem.kv_dtype = Dtype::e4m3;
    base_.problem.q_heads = 4;
    base_.problem.kv_heads = 2;
    base_.inputs.distribution = distribution;
  }

  Problem& problem() { return base_.problem; }
  Case& base() { return base_; }

  // Two requests of equal lengths without pages, and in pages of each size.
  CacheCases& add(Mask mask, int64_t q_len, int64_t kv_len) {
    base_.problem.set_lengths(nullptr);
    base_.problem.layout = Layout::bshd;
    base_.problem.batch = 2;
    base_.problem.q_len = q_len;
    base_.problem.kv_len = kv_len;
    return add_pages(mask);
  }

  // Requests of these lengths, packed; the same.
  CacheCases& add(Mask mask, const Requests& requests) {
    base_.problem.layout = Layout::ragged;
    base_.problem.set_lengths(std::make_shared<const Lengths>(requests));
    return add_pages(mask);
  }

  std::vector<Case> take() && { return std::move(cases_); }

 private:
  CacheCases& add_pages(Mask mask) {
    for (const std::optional<int64_t>& page_size : kPageSizes) {
      Case item = base_;
      item.problem.mask = mask;
      item.problem.page_size = page_size;
      item.problem.dtype = kCacheDtypes[cases_.size() % kCacheDtypes.size()];
      item.problem.descale = kCacheFactors[cases_.size() / 2 % kCacheFactors.size()];
      if (page_size) item.problem.kv_layout = kKvLayouts[cases_.size() / 4 % kKvLayouts.size()];
      cases_.push_back(item);
    }
    return *this;
  }

  static constexpr std::array<std::optional<int64_t>, 3> kPageSizes{std::nullopt, 16, 1};

  Case base_;
  std::vector<Case> cases_;
};

constexpr Mask kEveryKey = Mask::none, kCausalMask = Mask::causal_bottom_right;

const Requests kMixedCaches{{1, 300}, {4, 77}, {0, 9}, {1, 1}, {16, 270}, {1, 0}, {5, 64}};

std::vector<Case> one_hot_of_caches() {
  CacheCases cases(Distribution::one_hot);
  for (const int64_t head_dim : {40, 64, 72, 128, 192, 256}) {
    cases.problem().head_dim = head_dim;
    cases.add(kEveryKey, 1, 1000).add(kCausalMask, kMixedCaches);
  }
  cases.problem().head_dim = 128;
  for (const auto& [q_heads, kv_heads] : {std::pair{8, 8}, {6, 1}, {32, 2}, {51, 3}}) {
    cases.problem().q_heads = q_heads;
    cases.problem().kv_heads = kv_heads;
    cases.add(kEveryKey, 2, 513).add(kCausalMask, kMixedCaches);
  }
  return std::move(cases).take();
}

// Each query sees its own key.
std::vector<Case> every_byte_of_caches() {
  CacheCases cases(Distribution::one_hot);
  cases.problem().window_left = 0;
  cases.problem().window_right = 0;
  Requests requests;
  for (int64_t end = 16; end <= 304; end += 16) requests.push_back({16, end});
  cases.add(kEveryKey, requests).add(kEveryKey, 300, 300);
  return std::move(cases).take();
}

std::vector<Case> subnormals_of_caches() {
  CacheCases cases(Distribution::subnormals);
  cases.add(kEveryKey, 1, 300).add(kCausalMask, kMixedCaches).add(kEveryKey, 70, 129);
  return std::move(cases).take();
}

std::vector<Case> scores_of_caches() {
  std::vector<Case> all;
  for (const Distribution distribution : {Distribution::equal_scores, Distribution::late_maximum,
                                          Distribution::low_logsumexp, Distribution::huge_scores}) {
    CacheCases cases(distribution);
    cases.add(kEveryKey, 1, 256)
        .add(kEveryKey, 3, 1)
        .add(kCausalMask, kMixedCaches)
        .add(kCausalMask, 65, 192);
    for (Case& item : std::move(cases).take()) all.push_back(std::move(item));
  }
  return all;
}

std::vector<Case> nan_in_caches() {
  std::vector<Case> all;
  for (const Distribution distribution :
       {Distribution::nan_key, Distribution::nan_unseen, Distribution::nan_v_padding}) {
    CacheCases cases(distribution);
    cases.add(Mask::causal_top_left, 4, 300)
        .add(kCausalMask, kMixedCaches)
        .add(kCausalMask, 70, 300);
    cases.problem().window_left = 33;
    cases.add(kCausalMask, {{1, 300}, {16, 200}, {3, 40}}).add(kCausalMask, 16, 300);
    for (Case& item : std::move(cases).take()) all.push_back(std::move(item));
  }
  return all;
}

// Heads differ in size, so that the factor of another shows.
std::vector<Case> factors_of_caches() {
  CacheCases cases(Distribution::outliers);
  for (const auto& [q_heads, kv_heads] : {std::pair{4, 2}, {12, 3}, {8, 8}}) {
    cases.problem().q_heads = q_heads;
    cases.problem().kv_heads = kv_heads;
    cases.add(kEveryKey, 1, 513).add(kCausalMask, kMixedCaches).add(kCausalMask, 90, 300);
  }
  return std::move(cases).take();
}

std::vector<Case> shapes_of_caches() {
  CacheCases cases(Distribution::normal);
  for (const int64_t edge : {1, 15, 17, 31, 32, 33, 63, 64, 65, 127, 129, 255, 257, 511, 513}) {
    cases.add(kEveryKey, 1, edge).add(kCausalMask, 16, edge);
  }
  for (const int64_t head_dim : {8, 16, 48, 80, 104, 136, 200, 256}) {
    cases.problem().head_dim = head_dim;
    cases.add(kEveryKey, 1, 129);
  }
  constexpr std::array<std::pair<int64_t, int64_t>, 5> kPairs{
      {{192, 128}, {64, 128}, {128, 64}, {16, 256}, {256, 16}}};
  for (const auto& [head_dim, head_dim_v] : kPairs) {
    cases.problem().head_dim = head_dim;
    cases.problem().set_value_dim(head_dim_v);
    cases.add(kCausalMask, kMixedCaches);
  }
  cases.problem().set_value_dim(cases.problem().head_dim);
  for (const double scale : {-1.0, 0.0, 2.0}) {
    cases.problem().scale = scale;
    cases.add(kEveryKey, 1, 130);
  }
  return std::move(cases).take();
}

std::vector<Case> placements_of_caches() {
  CacheCases cases(Distribution::one_hot);
  for (const Placement placement : {Placement::strided, Placement::offset}) {
    cases.base().placement = placement;
    cases.add(kEveryKey, 1, 129).add(kCausalMask, kMixedCaches);
  }
  return std::move(cases).take();
}

}  // namespace

std::vector<SuiteGroup> groups_of_byte_caches() {
  return {
      {"one hot in a cache of bytes",
       "O is one row of V: requests, heads and rows are not mixed up", one_hot_of_caches()},
      {"every byte in a cache", "O is one row of V, which has every finite number of the format",
       every_byte_of_caches()},
      {"subnormal bytes in a cache", "no byte of K and V is a normal number: none counts as 0",
       subnormals_of_caches()},
      {"scores of a cache of bytes", "equal, rising, far below 0, and raw ones of +-524288",
       scores_of_caches()},
      {"NaN in a cache of bytes",
       "a key is NaN, or rows that no query sees: only the queries that see it are spoilt",
       nan_in_caches()},
      {"factors of a cache", "each K/V head, or the whole cache, has a factor",
       factors_of_caches()},
      {"shapes of a cache of bytes", "lengths around tiles of keys; head dims; scales",
       shapes_of_caches()},
      {"placement of a cache of bytes", "rows in strided buffers, and tensors off by one element",
       placements_of_caches()},
  };
}

}  // namespace flashbench
