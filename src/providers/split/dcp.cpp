// dcp: each device has a part of the keys (decode context parallelism). All compute with all
// queries, then exchange partial results and merge those of their own heads.
#include <limits>
#include <vector>

#include "providers/split/algorithm.h"
#include "providers/split/key_part.h"

namespace flashbench {

namespace {

class Dcp final : public SplitAlgorithm {
 public:
  explicit Dcp(const Ranks& ranks) {
    for (const auto& rank : ranks) states_.push_back(make_state(*rank));
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    const State& own = state_of(rank.number());
    const KeySplit& split = own.part.split();
    const RowRange heads = split.heads(rank.number());
    rank.begin({1, 3, StepWork::pull_queries, {RowRange{0, rank.whole().q_heads}}});
    rank.wait(own.part.pull_queries(rank, in));
    rank.begin({2, 3, StepWork::attend_keys, {split.keys(rank.number())}});
    own.part.compute(rank, in);
    rank.barrier();
    rank.begin({3, 3, StepWork::merge_heads, {heads}});
    merge_parts(rank, own, heads);
    const TensorView lse = logsumexp_view(static_cast<void*>(out.logsumexp), rank.whole());
    rank.store(own.o.view(), heads_of(out.o, heads));
    rank.store(own.logsumexp.view(), heads_of(lse, heads));
    rank.barrier();  // until all have read, none may begin the next run
  }

 private:
  struct State {
    KeyPart part;
    std::vector<RankTensor> part_o, part_logsumexp;  // of the rank's heads, from each rank
    RankTensor o, logsumexp;                         // of these, merged so far
  };

  const State& state_of(int rank) const { return states_[static_cast<size_t>(rank)]; }

  static State make_state(Rank& rank) {
    const Problem& p = rank.whole();
    State state{KeyPart(rank), {}, {}, {}, {}};
    const int64_t heads = state.part.split().heads(rank.number()).size();
    state.o = rank.tensor(Dtype::fp32, heads, p.q_len, p.value_dim());
    state.logsumexp = rank.tensor(Dtype::fp32, heads, p.q_len, 1);
    for (int from = 0; from < rank.group().ranks(); ++from) {
      state.part_o.push_back(rank.tensor(Dtype::fp32, heads, p.q_len, p.value_dim()));
      state.part_logsumexp.push_back(rank.tensor(Dtype::fp32, heads, p.q_len, 1));
    }
    return state;
  }

  // In the order of the keys, whichever comes first.
  void merge_parts(Rank& rank, const State& own, RowRange heads) const {
    std::vector<int64_t> pulls;
    for (int from = 0; from < rank.group().ranks(); ++from) {
      const KeyPart& part = state_of(from).part;
      const auto i = static_cast<size_t>(from);
      pulls.push_back(
          rank.pull(from, {{heads_of(part.o(), heads), own.part_o[i].view()},
                           {heads_of(part.logsumexp(), heads), own.part_logsumexp[i].view()}}));
    }
    rank.fill(own.logsumexp.view(), -std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < pulls.size(); ++i) {
      rank.wait(pulls[i]);
      rank.merge(own.o.view(), own.logsumexp.view(), own.part_o[i].view(),
                 own.part_logsumexp[i].view());
    }
  }

  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_dcp(const Ranks& ranks) {
  return std::make_unique<Dcp>(ranks);
}

}  // namespace flashbench
