#include "plan/suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "attention/error.h"
#include "plan/random_cases.h"
#include "plan/suite_of_byte_caches.h"
#include "plan/suite_of_bytes.h"
#include "plan/suite_of_lengths.h"
#include "plan/suite_of_pages.h"

namespace flashbench {

namespace {

using Cases = std::vector<Case>;
using LengthPairs = std::vector<std::pair<int64_t, int64_t>>;  // q_len, kv_len

constexpr std::array kCausal{Mask::causal_top_left, Mask::causal_bottom_right};
constexpr std::array kForward{Pass::forward};
constexpr std::array kBackward{Pass::backward};

// Around the tiles that kernels have, ours and those of GPUs.
constexpr std::array<int64_t, 10> kEdges{1, 63, 64, 65, 127, 128, 129, 255, 256, 257};

// Two batches, query heads in groups of two: enough to mix up any two of them.
Case base(Distribution distribution) {
  Case item;
  item.problem.batch = 2;
  item.problem.q_heads = 4;
  item.problem.kv_heads = 2;
  item.inputs.distribution = distribution;
  return item;
}

// `item` in every combination of these.
template <typename Passes, typename Dtypes, typename Masks>
void add(Cases& cases, Case item, const Passes& passes, const Dtypes& dtypes, const Masks& masks,
         const LengthPairs& lengths) {
  for (const Pass pass : passes) {
    for (const Dtype dtype : dtypes) {
      for (const Mask mask : masks) {
        for (const auto& [q_len, kv_len] : lengths) {
          item.problem.pass = pass;
          item.problem.dtype = dtype;
          item.problem.mask = mask;
          item.problem.q_len = q_len;
          item.problem.kv_len = kv_len;
          cases.push_back(item);
        }
      }
    }
  }
}

// `item` backward, with partial last blocks of queries and keys, at head dimensions whose kernels
// for Hopper mask these less than others do.
template <typename Masks>
void add_partial_blocks(Cases& cases, Case item, const Masks& masks) {
  for (const int64_t head_dim : {80, 128}) {
    item.problem.head_dim = head_dim;
    add(cases, item, kBackward, std::array{Dtype::fp16, Dtype::bf16}, masks, {{65, 200}});
  }
}

Cases equal_scores() {
  Cases cases;
  const Case item = base(Distribution::equal_scores);
  add(cases, item, kPasses, kUnscaledDtypes, std::array{Mask::none}, {{65, 256}});
  add(cases, item, kPasses, kUnscaledDtypes, kCausal, {{257, 257}});
  add(cases, item, kForward, std::array{Dtype::fp32}, std::array{Mask::none}, {{3, 16384}});
  return cases;
}

// Batch, heads and layout in every form, since V spells them.
Cases one_hot() {
  Cases cases;
  for (const Layout layout : kDenseLayouts) {
    for (const auto& [q_heads, kv_heads] : {std::pair{4, 4}, {8, 2}, {6, 1}, {14, 7}}) {
      Case item = base(Distribution::one_hot);
      item.problem.layout = layout;
      item.problem.q_heads = q_heads;
      item.problem.kv_heads = kv_heads;
      add(cases, item, kForward, kUnscaledDtypes,
          std::array{Mask::none, Mask::causal_top_left, Mask::causal_bottom_right}, {{70, 300}});
    }
  }
  for (const int64_t head_dim : {16, 40, 72, 128, 256}) {
    Case item = base(Distribution::one_hot);
    item.problem.head_dim = head_dim;
    add(cases, item, kForward, std::array{Dtype::fp32, Dtype::bf16}, std::array{Mask::none},
        {{33, 1000}});
  }
  add(cases, base(Distribution::one_hot), kBackward, kUnscaledDtypes,
      std::array{Mask::none, Mask::causal_bottom_right}, {{70, 300}});
  return cases;
}

Cases late_maximum() {
  Cases cases;
  const Case item = base(Distribution::late_maximum);
  add(cases, item, kPasses, kUnscaledDtypes, std::array{Mask::none, Mask::causal_bottom_right},
      {{100, 1025}});
  add(cases, item, kPasses, std::array{Dtype::fp32}, std::array{Mask::causal_top_left},
      {{640, 640}});
  return cases;
}

Cases low_logsumexp() {
  Cases cases;
  const Case item = base(Distribution::low_logsumexp);
  add(cases, item, kPasses, kUnscaledDtypes, std::array{Mask::none, Mask::causal_bottom_right},
      {{64, 64}, {192, 192}, {1, 64}});
  add(cases, item, kBackward, kUnscaledDtypes, std::array{Mask::none}, {{1, 1}, {64, 576}});
  // Keys that do not exist have scores of 0, far above all others.
  add_partial_blocks(cases, item, std::array{Mask::none, Mask::causal_bottom_right});
  return cases;
}

Cases huge_scores() {
  Cases cases;
  const Case item = base(Distribution::huge_scores);
  add(cases, item, kPasses, kUnscaledDtypes, std::array{Mask::none}, {{3, 1}, {33, 129}});
  add(cases, item, kPasses, kUnscaledDtypes, std::array{Mask::causal_top_left}, {{130, 130}});
  return cases;
}

Cases masked_rows() {
  Cases cases;
  const Case item = base(Distribution::normal);
  add(cases, item, kPasses, kUnscaledDtypes, std::array{Mask::causal_bottom_right},
      {{300, 100}, {257, 1}});
  // So many blocks of queries without a key that each multiprocessor has some in a row.
  Case many = item;
  many.problem.q_heads = 512;
  many.problem.head_dim = 8;
  add(cases, many, kForward, std::array{Dtype::fp16}, std::array{Mask::causal_bottom_right},
      {{257, 1}});
  return cases;
}

Cases alignment() {
  Cases cases;
  const Case item = base(Distribution::normal);
  add(cases, item, kPasses, std::array{Dtype::fp32, Dtype::fp16}, kCausal,
      {{100, 300}, {300, 100}, {1, 257}, {65, 64}, {64, 65}});
  return cases;
}

Cases lengths() {
  Cases cases;
  LengthPairs square, one_query, one_key;
  for (const int64_t edge : kEdges) {
    square.emplace_back(edge, edge);
    one_query.emplace_back(1, edge);
    one_key.emplace_back(edge, 1);
  }
  const Case item = base(Distribution::normal);
  add(cases, item, kPasses, std::array{Dtype::fp32, Dtype::bf16},
      std::array{Mask::causal_bottom_right}, square);
  add(cases, item, kPasses, std::array{Dtype::fp32}, std::array{Mask::none}, one_query);
  add(cases, item, kPasses, std::array{Dtype::fp32}, std::array{Mask::none}, one_key);
  return cases;
}

Cases head_dims() {
  Cases cases;
  for (const int64_t head_dim : {8, 24, 40, 72, 104, 136, 200, 248, 256}) {
    Case item = base(Distribution::normal);
    item.problem.head_dim = head_dim;
    add(cases, item, kPasses, std::array{Dtype::fp32, Dtype::fp16},
        std::array{Mask::causal_bottom_right}, {{65, 129}});
  }
  return cases;
}

// 192 and 128 is the prefill of DeepSeek's multi-head latent attention.
Cases own_head_dim_of_v() {
  constexpr std::array<std::pair<int64_t, int64_t>, 5> kPairs{
      {{192, 128}, {128, 64}, {64, 128}, {8, 256}, {256, 8}}};
  Cases cases;
  const auto add_pairs = [&](Case item, const auto& passes, const auto& dtypes, const auto& masks,
                             const LengthPairs& lengths) {
    for (const auto& [head_dim, head_dim_v] : kPairs) {
      item.problem.head_dim = head_dim;
      item.problem.set_value_dim(head_dim_v);
      add(cases, item, passes, dtypes, masks, lengths);
    }
  };
  add_pairs(base(Distribution::normal), kPasses, kUnscaledDtypes, std::array{Mask::none},
            {{33, 65}});
  add_pairs(base(Distribution::normal), kPasses, kUnscaledDtypes, kCausal, {{33, 17}});
  add_pairs(base(Distribution::one_hot), kForward, kUnscaledDtypes,
            std::array{Mask::causal_bottom_right}, {{33, 65}});
  for (const Distribution distribution : {Distribution::equal_scores, Distribution::nan_key,
                                          Distribution::inf_key, Distribution::nan_unseen}) {
    add_pairs(base(distribution), kPasses, std::array{Dtype::fp32, Dtype::bf16},
              std::array{Mask::causal_top_left}, {{33, 65}});
  }
  for (const Placement placement : {Placement::strided, Placement::offset}) {
    Case item = base(Distribution::normal);
    item.problem.layout = Layout::bhsd;
    item.placement = placement;
    add_pairs(item, kPasses, std::array{Dtype::fp32, Dtype::fp16}, std::array{Mask::none},
              {{33, 65}});
  }
  return cases;
}

Cases grouped_heads() {
  Cases cases;
  for (const auto& [q_heads, kv_heads] : {std::pair{8, 1}, {12, 3}, {6, 2}}) {
    Case item = base(Distribution::normal);
    item.problem.q_heads = q_heads;
    item.problem.kv_heads = kv_heads;
    add(cases, item, kBackward, std::array{Dtype::fp32, Dtype::bf16},
        std::array{Mask::causal_bottom_right}, {{65, 130}});
  }
  return cases;
}

Cases scales() {
  Cases cases;
  for (const double scale : {-1.0, 0.0, 2.0}) {
    Case item = base(Distribution::normal);
    item.problem.scale = scale;
    add(cases, item, kPasses, std::array{Dtype::fp32, Dtype::bf16}, std::array{Mask::none},
        {{65, 130}});
  }
  return cases;
}

Cases spoilt(Distribution distribution) {
  Cases cases;
  const Case item = base(distribution);
  add(cases, item, kPasses, std::array{Dtype::fp32, Dtype::bf16}, std::array{Mask::none},
      {{65, 130}});
  add(cases, item, kPasses, kUnscaledDtypes, kCausal, {{200, 200}, {70, 300}, {300, 70}});
  // One query in the last block, beside keys that no query sees.
  add_partial_blocks(cases, item, std::array{Mask::causal_top_left});
  return cases;
}

Cases unseen() {
  Cases cases;
  add(cases, base(Distribution::nan_unseen), kPasses, kUnscaledDtypes,
      std::array{Mask::causal_top_left}, {{70, 300}, {1, 64}});
  return cases;
}

constexpr std::array kAllMasks{Mask::none, Mask::causal_top_left, Mask::causal_bottom_right};
const LengthPairs kWindowLengths{{200, 200}, {70, 300}, {300, 70}};

Case in_window(Distribution distribution, std::optional<int64_t> left,
               std::optional<int64_t> right) {
  Case item = base(distribution);
  item.problem.batch = item.problem.kv_heads = 1;
  item.problem.q_heads = 2;
  item.problem.window_left = left;
  item.problem.window_right = right;
  return item;
}

// Around a tile's edge and beyond all keys. Forward, O tells which key was seen. Each window has
// one dtype.
Cases windows() {
  using Window = std::optional<int64_t>;
  std::vector<std::pair<Window, Window>> windows{{0, 0}, {1, 1}, {63, 64}, {129, 127}};
  for (const int64_t keys : {0, 1, 63, 64, 65, 1000}) {
    windows.emplace_back(keys, std::nullopt);
    windows.emplace_back(std::nullopt, keys);
  }
  Cases cases;
  size_t turn = 0;
  for (const auto& [left, right] : windows) {
    const std::array dtype{kUnscaledDtypes[turn++ % kUnscaledDtypes.size()]};
    for (const Mask mask : kAllMasks) {
      if (mask != Mask::none && !left) continue;  // the mask hides more
      const std::array masks{mask};
      add(cases, in_window(Distribution::one_hot, left, right), kForward, dtype, masks,
          kWindowLengths);
      add(cases, in_window(Distribution::normal, left, right), kBackward, dtype, masks,
          kWindowLengths);
    }
  }
  return cases;
}

// 64 keys, of the last tile and the one before it.
Cases window_means() {
  Cases cases;
  add(cases, in_window(Distribution::equal_scores, 63, 0), kForward, kUnscaledDtypes, kAllMasks,
      kWindowLengths);
  add(cases, in_window(Distribution::equal_scores, 40, 23), kForward, kUnscaledDtypes,
      std::array{Mask::none}, kWindowLengths);
  return cases;
}

Cases beside_windows() {
  Cases cases;
  add(cases, in_window(Distribution::nan_unseen, 30, 0), kPasses, kUnscaledDtypes, kAllMasks,
      {{70, 300}, {1, 200}});
  for (const Distribution distribution : {Distribution::nan_key, Distribution::inf_key}) {
    add(cases, in_window(distribution, 33, 20), kPasses, std::array{Dtype::fp32, Dtype::bf16},
        kAllMasks, kWindowLengths);
  }
  return cases;
}

Cases many_heads() {
  Cases cases;
  constexpr int64_t kMany = 65537;  // one more than a 16-bit index, two more than gridDim.y holds
  for (const auto& [batch, q_heads, kv_heads] :
       {std::array<int64_t, 3>{kMany, 1, 1}, {1, kMany, kMany}, {1, kMany, 1}}) {
    Case item = base(Distribution::one_hot);
    item.problem.batch = batch;
    item.problem.q_heads = q_heads;
    item.problem.kv_heads = kv_heads;
    item.problem.head_dim = 8;
    add(cases, item, kForward, std::array{Dtype::fp16}, std::array{Mask::none}, {{2, 3}});
    item.inputs.distribution = Distribution::normal;
    add(cases, item, kBackward, std::array{Dtype::fp16}, std::array{Mask::none}, {{2, 3}});
  }
  return cases;
}

Cases placements() {
  Cases cases;
  for (const Placement placement : {Placement::strided, Placement::offset}) {
    for (const Layout layout : kDenseLayouts) {
      Case item = base(Distribution::one_hot);
      item.problem.layout = layout;
      item.placement = placement;
      add(cases, item, kForward, kUnscaledDtypes, std::array{Mask::causal_bottom_right},
          {{65, 129}});
      item.inputs.distribution = Distribution::normal;
      add(cases, item, kPasses, kUnscaledDtypes, std::array{Mask::none}, {{65, 129}});
    }
  }
  return cases;
}

Suite adversarial() {
  Suite suite{
      "adversarial",
      "Cases that every attention implementation must get right, and some released ones got wrong.",
      {{"equal scores", "O is the mean of the visible rows of V, exactly for powers of two",
        equal_scores()},
       {"one hot", "O is one row of V, bit for bit: batches, heads and rows are not mixed up",
        one_hot()},
       {"late maximum", "the running maximum rises in every tile: O and the sum are rescaled",
        late_maximum()},
       {"low logsumexp",
        "the logsumexp is below -88.7 and lengths are not multiples of a tile: padding must "
        "not count",
        low_logsumexp()},
       {"huge scores",
        "raw scores of -524288 and +524288: a lone key gives its row of V bit for bit",
        huge_scores()},
       {"masked rows", "queries that see no key: O is 0, the logsumexp -infinity, no gradient",
        masked_rows()},
       {"alignment", "q_len and kv_len differ, for both causal corners", alignment()},
       {"lengths", "1, and the tile sizes 64, 128 and 256, each minus 1, exact and plus 1",
        lengths()},
       {"head dims", "head_dim is not a multiple of a vector or of 64", head_dims()},
       {"head dim of V", "V and O are narrower or wider than Q and K", own_head_dim_of_v()},
       {"grouped heads", "dK and dV sum over all query heads of a group and no other",
        grouped_heads()},
       {"scales", "negative, zero and large softmax scales", scales()},
       {"NaN key", "one row of K is NaN: the queries that see it are NaN, all others are right",
        spoilt(Distribution::nan_key)},
       {"infinite key", "a score of +infinity makes its query NaN, one of -infinity masks the key",
        spoilt(Distribution::inf_key)},
       {"unseen keys", "rows of K that no query sees are NaN: nothing else is", unseen()},
       {"windows", "windows of 0, 1, a tile's keys and one off it, and more keys than there are",
        windows()},
       {"window means", "O is the mean of the window's rows of V, exactly", window_means()},
       {"beside windows",
        "keys and values before or after every window are NaN, or one key is NaN or infinite: only "
        "the queries that see it are spoilt",
        beside_windows()},
       {"many heads", "65537 batches or heads", many_heads()},
       {"placement", "rows in strided buffers, and tensors off by one element", placements()}},
      {}};
  for (std::vector<SuiteGroup> more :
       {groups_of_lengths(), groups_of_pages(), groups_of_bytes(), groups_of_byte_caches()}) {
    std::move(more.begin(), more.end(), std::back_inserter(suite.groups));
  }
  return suite;
}

// Shapes whose reference is cheap: few queries, or few keys; 2^31 is passed by 17 / 16.
Suite large() {
  Case keys = base(Distribution::one_hot);
  keys.problem = {.dtype = Dtype::fp16,
                  .batch = 17,
                  .q_heads = 8,
                  .kv_heads = 8,
                  .q_len = 1,
                  .kv_len = 131072,
                  .head_dim = 128};
  Case queries = base(Distribution::one_hot);
  queries.problem = {.dtype = Dtype::fp16,
                     .batch = 17,
                     .q_heads = 8,
                     .kv_heads = 8,
                     .q_len = 131072,
                     .kv_len = 2,
                     .head_dim = 128};
  Case gradients = keys;
  gradients.problem.pass = Pass::backward;
  return {
      "large",
      "Tensors past 2^31 elements.",
      {{"many keys", "K and V past 2^31 elements: O is one row of V, bit for bit", {keys}},
       {"many queries", "Q and O past 2^31 elements: O is one row of V, bit for bit", {queries}},
       {"many gradients", "K, V, dK and dV past 2^31 elements", {gradients}},
       {"large pool", "pages past 2^31 elements: O is one row of V, bit for bit", {large_pool()}}},
      {.fp64_flops = 1e9}};
}

Suite random(const RandomSeeds& seeds) {
  constexpr int64_t kLongest = 3000;  // some tiles of any kernel, and a reference that costs little
  Cases cases, of_bytes;
  for (int64_t i = 0; i < seeds.count; ++i) {
    const uint64_t seed = seeds.seed + static_cast<uint64_t>(i);
    cases.push_back(random_case(seed, kLongest));
    of_bytes.push_back(random_case_of_bytes(seed, kLongest));
  }
  return {"random",
          "Random problems; --seed N --count 1 repeats the one whose inputs have the seed N.",
          {{"random", "outputs are right", std::move(cases)},
           {"random bytes", "the same of dtype e4m3", std::move(of_bytes)}},
          {},
          seeds};
}

}  // namespace

std::vector<std::string> suite_names() {
  return {"adversarial", "large", "random"};
}

Suite make_suite(std::string_view name, const std::optional<RandomSeeds>& seeds) {
  if (name == "random") return random(seeds.value_or(RandomSeeds()));
  if (seeds) {
    throw BadInput(
        fmt::format("a seed and a count are for the suite random only, got \"{}\"", name));
  }
  if (name == "adversarial") return adversarial();
  if (name == "large") return large();
  throw BadInput(
      fmt::format("expected a suite ({}), got \"{}\"", fmt::join(suite_names(), ", "), name));
}

SweepConfig suite_config(const Suite& suite) {
  SweepConfig config;
  config.name = suite.name;
  config.description = suite.description;
  config.verify = suite.verify;
  config.json = {{"name", config.name}, {"suite", config.name}};
  if (suite.seeds) {
    config.json["seed"] = suite.seeds->seed;
    config.json["count"] = suite.seeds->count;
  }
  std::set<std::string> keys;
  for (const SuiteGroup& group : suite.groups) {
    for (const Case& item : group.cases) {
      if (keys.insert(item.key()).second) config.cases.push_back(item);
    }
  }
  return config;
}

}  // namespace flashbench
