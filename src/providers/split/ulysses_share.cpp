// ulysses on GPUs, forward: one launch computes all tokens of a rank's heads. It reads the rank's
// own rows where they are, fetches those of others while it computes, and stores O where it
// belongs, in the memory of the tokens' owner.
#include <utility>
#include <vector>

#include "providers/split/algorithm.h"

namespace flashbench {

namespace {

class UlyssesShare final : public SplitAlgorithm {
 public:
  explicit UlyssesShare(const Ranks& ranks) {
    for (const auto& rank : ranks) states_.push_back(make_state(*rank));
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    const State& state = states_[static_cast<size_t>(rank.number())];
    const RowRange kv_heads = rank.own_kv_heads(), q_heads = rank.q_heads_of(kv_heads);
    const kernels::Share share{.queries = {RowRange{0, 0}, RowRange{0, rank.whole().q_len}},
                               .all_q = heads_of(in.q, q_heads),
                               .all_k = heads_of(in.k, kv_heads),
                               .all_v = heads_of(in.v, kv_heads),
                               .own_rows = rank.own_rows(),
                               .progress = state.progress.data()};
    // The kernel takes the logsumexp of all its heads and requests side by side.
    const TensorView lse =
        heads_of(logsumexp_view(static_cast<void*>(out.logsumexp), rank.whole()), q_heads);
    const bool in_place = rank.whole().batch == 1;
    rank.begin({1, 1, StepWork::attend_heads, {q_heads}});
    rank.compute_share(
        rank.block_of_heads(kv_heads),
        {.q = state.q.view(), .k = state.k.view(), .v = state.v.view()},
        {.o = heads_of(out.o, q_heads),
         .logsumexp = static_cast<float*>(in_place ? lse.data : state.logsumexp.view().data)},
        share, fetched_rows(rank, state, share));
    if (!in_place) rank.store(state.logsumexp.view(), lse);
  }

 private:
  struct State {
    RankTensor q, k, v, logsumexp;  // of the rank's heads, all tokens
    Buffer progress;
  };

  static State make_state(Rank& rank) {
    const Problem p = rank.block_of_heads(rank.own_kv_heads());
    rank.reserve(p);
    return {rank.pulled_tensor(p.dtype, p.q_heads, p.q_len, p.head_dim),
            rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.head_dim),
            rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.value_dim()),
            rank.tensor(Dtype::fp32, p.q_heads, p.q_len, 1),
            rank.group().allocate(rank.number(), kernels::kShareProgressBytes)};
  }

  static std::vector<Rank::RowsFrom> fetched_rows(const Rank& rank, const State& state,
                                                  const kernels::Share& share) {
    std::vector<Rank::RowsFrom> sources;
    for (int owner = 0; owner < rank.group().ranks(); ++owner) {
      if (owner == rank.number()) continue;
      Rank::RowsFrom& source = sources.emplace_back(Rank::RowsFrom{owner, {}});
      for (const RowRange rows : rank.rows_of_rank(owner)) {
        source.rows.emplace_back(rows_of(share.all_q, rows), rows_of(state.q.view(), rows));
        source.rows.emplace_back(rows_of(share.all_k, rows), rows_of(state.k.view(), rows));
        source.rows.emplace_back(rows_of(share.all_v, rows), rows_of(state.v.view(), rows));
      }
    }
    return sources;
  }

  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_ulysses_share(const Ranks& ranks) {
  return std::make_unique<UlyssesShare>(ranks);
}

}  // namespace flashbench
