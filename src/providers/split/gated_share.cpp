// gated on GPUs: one launch computes all of a rank's queries. It fetches K and V of the tokens that
// they see, downwards from the last, while it computes, and reads the rank's own where they are.
#include <algorithm>
#include <vector>

#include "providers/split/algorithm.h"

namespace flashbench {

namespace {

class GatedShare final : public SplitAlgorithm {
 public:
  explicit GatedShare(const Ranks& ranks) {
    for (const auto& rank : ranks) states_.push_back(make_state(*rank));
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    const State& state = states_[static_cast<size_t>(rank.number())];
    const int64_t keys = keys_of(rank);
    if (keys == 0) return;
    kernels::Share share{.queries = rank.own_rows(),
                         .all_k = rows_of(in.k, {0, keys}),
                         .all_v = rows_of(in.v, {0, keys}),
                         .progress = state.progress.data()};
    if (rank.own_in_place()) share.own_rows = rank.own_rows();
    rank.begin({1, 1, StepWork::attend_queries, rank.own_rows()});
    rank.compute_share(rank.whole().of_one_device(),
                       {.q = in.q, .k = state.k.first_rows(keys), .v = state.v.first_rows(keys)},
                       out, share, fetched_keys(rank, state, in, keys));
  }

 private:
  struct State {
    RankTensor k, v;  // of all tokens
    Buffer progress;
  };

  static State make_state(Rank& rank) {
    const Problem& p = rank.whole();
    rank.reserve(p.of_one_device());
    return {rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.head_dim),
            rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.value_dim()),
            rank.group().allocate(rank.number(), kernels::kShareProgressBytes)};
  }

  // The keys from the first on that the rank's queries see; 0 if it has no queries.
  static int64_t keys_of(const Rank& rank) {
    const auto [first, second] = rank.own_rows();
    if (first.empty() && second.empty()) return 0;
    const int64_t end = second.empty() ? first.end : second.end;
    return rank.causal() ? end : rank.tokens().tokens;
  }

  // Of each rank, and of the own where these are not read in place.
  static std::vector<Rank::RowsFrom> fetched_keys(const Rank& rank, const State& state,
                                                  const Inputs& in, int64_t keys) {
    std::vector<Rank::RowsFrom> sources;
    for (int owner = 0; owner < rank.group().ranks(); ++owner) {
      if (owner == rank.number() && rank.own_in_place()) continue;
      Rank::RowsFrom& source = sources.emplace_back(Rank::RowsFrom{owner, {}});
      for (const RowRange chunk : rank.rows_of_rank(owner)) {
        const RowRange rows{chunk.first, std::min(chunk.end, keys)};
        if (rows.first >= rows.end) continue;
        source.rows.emplace_back(rows_of(in.k, rows), rows_of(state.k.view(), rows));
        source.rows.emplace_back(rows_of(in.v, rows), rows_of(state.v.view(), rows));
      }
    }
    return sources;
  }

  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_gated_share(const Ranks& ranks) {
  return std::make_unique<GatedShare>(ranks);
}

}  // namespace flashbench
