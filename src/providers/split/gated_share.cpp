// gated on GPUs: K and V of all tokens that its queries see come to a rank in parts, while one
// launch computes all of its queries and waits for each part. The kernel goes downwards from the
// last key that a query sees, so the parts are pulled in that order. The rank's own are read where
// they are.
#include <algorithm>
#include <vector>

#include "providers/split/algorithm.h"

namespace flashbench {

namespace {

// Equal parts of every chunk but the last that has tokens. A pull takes some 20 us beyond its
// bytes, so that small ones would hold up the others.
class KeyParts {
 public:
  explicit KeyParts(const TokenSplit& tokens) : keys_(tokens.chunk_length()) {
    constexpr int kMostOfAChunk = 4;
    constexpr int64_t kLeastKeys = 2048;
    int of_a_chunk = 1;
    const auto fits = [&](int parts) {
      return keys_ % 2 == 0 && keys_ / 2 >= kLeastKeys &&
             parts * tokens.chunks() <= DeviceGroup::kArrivalWords;
    };
    while (of_a_chunk < kMostOfAChunk && fits(2 * of_a_chunk)) {
      of_a_chunk *= 2;
      keys_ /= 2;
    }
  }

  int64_t keys() const { return keys_; }
  int count(int64_t keys) const { return static_cast<int>((keys + keys_ - 1) / keys_); }
  // The first part to arrive has the last keys.
  RowRange part(int number, int64_t keys) const {
    const int64_t first = (count(keys) - 1 - number) * keys_;
    return {first, std::min(first + keys_, keys)};
  }

 private:
  int64_t keys_;
};

class GatedShare final : public SplitAlgorithm {
 public:
  explicit GatedShare(const Ranks& ranks) : parts_(ranks.front()->tokens()) {
    for (const auto& rank : ranks) states_.push_back(make_state(*rank));
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    const State& state = states_[static_cast<size_t>(rank.number())];
    const int64_t keys = keys_of(rank);
    if (keys == 0) return;
    rank.begin({1, 1, StepWork::attend_queries, rank.own_rows()});
    const DeviceGroup::Arrivals arrivals = rank.group().arrivals(rank.number());
    kernels::Share share{.queries = rank.own_rows(),
                         .part_rows = parts_.keys(),
                         .part_heads = rank.whole().kv_heads,
                         .arrived = arrivals.words,
                         .run = arrivals.run};
    if (rank.own_in_place()) {
      share.own_rows = rank.own_rows();
      share.own_q = in.q;
      share.own_k = rows_of(in.k, {0, keys});
      share.own_v = rows_of(in.v, {0, keys});
    }
    pull_keys(rank, state, in, keys);
    rank.compute(rank.whole().of_one_device(),
                 {.q = in.q, .k = state.k.first_rows(keys), .v = state.v.first_rows(keys)}, out,
                 nullptr, &share);
  }

 private:
  struct State {
    RankTensor k, v;  // of all tokens
  };

  static State make_state(Rank& rank) {
    const Problem& p = rank.whole();
    rank.reserve(p.of_one_device());
    return {rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.head_dim),
            rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.value_dim())};
  }

  // The keys from the first on that the rank's queries see; 0 if it has no queries.
  static int64_t keys_of(const Rank& rank) {
    const auto [first, second] = rank.own_rows();
    if (first.empty() && second.empty()) return 0;
    const int64_t end = second.empty() ? first.end : second.end;
    return rank.causal() ? end : rank.tokens().tokens;
  }

  // A copy within a GPU is a kernel. Behind one that fills the GPU and waits for it, it would never
  // run; so it is waited for first.
  void pull_keys(Rank& rank, const State& state, const Inputs& in, int64_t keys) const {
    const auto gpu_of = [&](int r) { return rank.group().info(r).index; };
    for (int part = 0; part < parts_.count(keys); ++part) {
      const RowRange rows = parts_.part(part, keys);
      const int owner =
          rank.tokens().owner(static_cast<int>(rows.first / rank.tokens().chunk_length()));
      if (owner == rank.number() && rank.own_in_place()) continue;
      const int64_t pull = rank.pull(owner, {{rows_of(in.k, rows), rows_of(state.k.view(), rows)},
                                             {rows_of(in.v, rows), rows_of(state.v.view(), rows)}});
      rank.announce(part);
      if (gpu_of(owner) == gpu_of(rank.number())) rank.wait(pull);
    }
  }

  KeyParts parts_;
  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_gated_share(const Ranks& ranks) {
  return std::make_unique<GatedShare>(ranks);
}

}  // namespace flashbench
