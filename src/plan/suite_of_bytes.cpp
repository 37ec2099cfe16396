#include "plan/suite_of_bytes.h"

#include <array>
#include <optional>
#include <utility>

namespace flashbench {

namespace {

// Builds cases of one distribution: two batches, query heads in groups of two.
class BytesCases {
 public:
  explicit BytesCases(Distribution distribution) {
    item_.problem.dtype = Dtype::e4m3;
    item_.problem.batch = 2;
    item_.problem.q_heads = 4;
    item_.problem.kv_heads = 2;
    item_.inputs.distribution = distribution;
  }

  Problem& problem() { return item_.problem; }
  Case& item() { return item_; }

  // With each mask and each kind of factors.
  BytesCases& add(const std::vector<Mask>& masks,
                  const std::vector<std::pair<int64_t, int64_t>>& lengths) {
    for (const auto& [q_len, kv_len] : lengths) {
      for (const Mask mask : masks) {
        for (const Descale descale : kDescales) {
          item_.problem.mask = mask;
          item_.problem.q_len = q_len;
          item_.problem.kv_len = kv_len;
          item_.problem.descale = descale;
          cases_.push_back(item_);
        }
      }
    }
    return *this;
  }

  std::vector<Case> take() && { return std::move(cases_); }

 private:
  Case item_;
  std::vector<Case> cases_;
};

const std::vector<Mask> kNoMask{Mask::none};
const std::vector<Mask> kBottomRight{Mask::causal_bottom_right};
const std::vector<Mask> kBothCausal{Mask::causal_top_left, Mask::causal_bottom_right};
const std::vector<Mask> kEveryMask{kMasks.begin(), kMasks.end()};

std::vector<Case> equal_scores_of_bytes() {
  BytesCases cases(Distribution::equal_scores);
  cases.add(kNoMask, {{65, 256}, {3, 4096}}).add(kBothCausal, {{257, 257}});
  return std::move(cases).take();
}

std::vector<Case> one_hot_of_bytes() {
  BytesCases cases(Distribution::one_hot);
  for (const Layout layout : kDenseLayouts) {
    for (const auto& [q_heads, kv_heads] : {std::pair{4, 4}, {8, 2}, {6, 1}, {14, 7}}) {
      cases.problem().layout = layout;
      cases.problem().q_heads = q_heads;
      cases.problem().kv_heads = kv_heads;
      cases.add(kEveryMask, {{70, 300}});
    }
  }
  for (const int64_t head_dim : {16, 40, 72, 128, 256}) {
    cases.problem().head_dim = head_dim;
    cases.add(kNoMask, {{33, 1000}});
  }
  return std::move(cases).take();
}

// Each query sees its own key.
std::vector<Case> every_byte() {
  BytesCases cases(Distribution::one_hot);
  cases.problem().window_left = 0;
  cases.problem().window_right = 0;
  cases.add(kNoMask, {{300, 300}});
  return std::move(cases).take();
}

std::vector<Case> subnormals() {
  BytesCases cases(Distribution::subnormals);
  cases.add(kEveryMask, {{70, 300}});
  return std::move(cases).take();
}

std::vector<Case> late_maximum_of_bytes() {
  BytesCases cases(Distribution::late_maximum);
  cases.add({Mask::none, Mask::causal_bottom_right}, {{100, 1025}});
  return std::move(cases).take();
}

std::vector<Case> low_logsumexp_of_bytes() {
  BytesCases cases(Distribution::low_logsumexp);
  cases.add({Mask::none, Mask::causal_bottom_right}, {{64, 64}, {192, 192}, {1, 64}});
  return std::move(cases).take();
}

std::vector<Case> huge_scores_of_bytes() {
  BytesCases cases(Distribution::huge_scores);
  cases.add(kNoMask, {{3, 1}, {33, 129}}).add({Mask::causal_top_left}, {{130, 130}});
  return std::move(cases).take();
}

std::vector<Case> nan_keys_of_bytes() {
  BytesCases cases(Distribution::nan_key);
  cases.add(kEveryMask, {{200, 200}, {70, 300}, {300, 70}});
  cases.problem().window_left = 33;
  cases.problem().window_right = 20;
  cases.add(kEveryMask, {{70, 300}});
  return std::move(cases).take();
}

std::vector<Case> unseen_bytes() {
  BytesCases cases(Distribution::nan_unseen);
  cases.add({Mask::causal_top_left}, {{70, 300}, {1, 64}});
  cases.problem().window_left = 30;
  cases.problem().window_right = 0;
  cases.add(kEveryMask, {{70, 300}, {1, 200}});
  return std::move(cases).take();
}

// Heads and blocks differ in size, so that a factor of another shows.
std::vector<Case> factors_of_bytes() {
  BytesCases cases(Distribution::outliers);
  cases.add(kEveryMask, {{90, 300}, {300, 90}, {1, 513}});
  cases.problem().q_heads = 12;
  cases.problem().kv_heads = 3;
  cases.add(kBottomRight, {{65, 130}});
  return std::move(cases).take();
}

std::vector<Case> shapes_of_bytes() {
  BytesCases cases(Distribution::normal);
  for (const int64_t edge : {1, 31, 32, 33, 63, 65, 127, 128, 129, 255, 256, 257}) {
    cases.add(kBottomRight, {{edge, edge}}).add(kNoMask, {{1, edge}, {edge, 1}});
  }
  for (const int64_t head_dim : {8, 24, 40, 104, 136, 200, 256}) {
    cases.problem().head_dim = head_dim;
    cases.add(kBottomRight, {{65, 129}});
  }
  constexpr std::array<std::pair<int64_t, int64_t>, 4> kPairs{
      {{192, 128}, {64, 128}, {8, 256}, {256, 8}}};
  for (const auto& [head_dim, head_dim_v] : kPairs) {
    cases.problem().head_dim = head_dim;
    cases.problem().set_value_dim(head_dim_v);
    cases.add(kBottomRight, {{33, 65}});
  }
  return std::move(cases).take();
}

std::vector<Case> scales_of_bytes() {
  BytesCases cases(Distribution::normal);
  for (const double scale : {-1.0, 0.0, 2.0}) {
    cases.problem().scale = scale;
    cases.add(kNoMask, {{65, 130}});
  }
  return std::move(cases).take();
}

std::vector<Case> windows_of_bytes() {
  using Window = std::optional<int64_t>;
  BytesCases cases(Distribution::one_hot);
  for (const auto& [left, right] :
       {std::pair<Window, Window>{1, 1}, {63, 64}, {129, 127}, {64, {}}, {{}, 64}}) {
    cases.problem().window_left = left;
    cases.problem().window_right = right;
    cases.add(left ? kEveryMask : kNoMask, {{70, 300}, {300, 70}});
  }
  return std::move(cases).take();
}

std::vector<Case> placements_of_bytes() {
  BytesCases cases(Distribution::one_hot);
  for (const Placement placement : {Placement::strided, Placement::offset}) {
    for (const Layout layout : kDenseLayouts) {
      cases.item().placement = placement;
      cases.problem().layout = layout;
      cases.add(kBottomRight, {{65, 129}});
    }
  }
  return std::move(cases).take();
}

// So many keys that what tensor cores cut off of sums shows, and scores of which most are so far
// below the largest that P without an offset would be 0 in e4m3.
std::vector<Case> long_sums_of_bytes() {
  BytesCases promoted(Distribution::mean_v);
  promoted.problem().batch = 1;
  promoted.add(kNoMask, {{2, 32768}});
  BytesCases flushed(Distribution::mean_v);
  flushed.problem().scale = 0.3;
  flushed.add(kNoMask, {{8, 32768}});
  std::vector<Case> all = std::move(promoted).take();
  for (Case& item : std::move(flushed).take()) all.push_back(std::move(item));
  return all;
}

}  // namespace

std::vector<SuiteGroup> groups_of_bytes() {
  return {
      {"equal scores of bytes", "O is the mean of the visible rows of V, exactly for powers of two",
       equal_scores_of_bytes()},
      {"one hot of bytes", "O is one row of V: batches, heads and rows are not mixed up",
       one_hot_of_bytes()},
      {"every byte", "O is one row of V, which has every finite number of the format",
       every_byte()},
      {"subnormal bytes", "no byte of Q, K and V is a normal number: none counts as 0",
       subnormals()},
      {"late maximum of bytes", "the running maximum rises: O and the sum are rescaled",
       late_maximum_of_bytes()},
      {"low logsumexp of bytes", "the logsumexp is below -88.7: padding must not count",
       low_logsumexp_of_bytes()},
      {"huge scores of bytes", "raw scores of -524288 and +524288: a lone key gives its row of V",
       huge_scores_of_bytes()},
      {"NaN key in bytes", "one row of K is NaN: the queries that see it are NaN, others are right",
       nan_keys_of_bytes()},
      {"unseen keys in bytes", "rows of K and V that no query sees are NaN: nothing else is",
       unseen_bytes()},
      {"factors of bytes", "each head, block or tensor has its own factor", factors_of_bytes()},
      {"shapes of bytes",
       "lengths around tiles and steps of 32 keys; head dims of any multiple of 8",
       shapes_of_bytes()},
      {"scales of bytes", "negative, zero and large softmax scales", scales_of_bytes()},
      {"windows of bytes", "O is the row of V of one key of the window", windows_of_bytes()},
      {"placement of bytes", "rows in strided buffers, and tensors off by one element",
       placements_of_bytes()},
      {"long sums of bytes", "sums of many products, and many terms far below the largest",
       long_sums_of_bytes()},
  };
}

}  // namespace flashbench
