// ulysses: from a part of the tokens of all heads to all tokens of a part of the heads, and back.
#include <vector>

#include "providers/split/algorithm.h"

namespace flashbench {

namespace {

class Ulysses final : public SplitAlgorithm {
 public:
  explicit Ulysses(const Ranks& ranks) {
    for (const auto& rank : ranks) states_.push_back(make_state(*rank));
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    const State& own = states_[static_cast<size_t>(rank.number())];
    const int64_t heads = own.q.view().heads;
    const RowRange own_heads{rank.number() * heads, (rank.number() + 1) * heads};
    rank.begin({1, 3, StepWork::pull_heads, {own_heads}});
    rank.wait(pull_heads(rank, own, in));
    rank.begin({2, 3, StepWork::attend_heads, {own_heads}});
    const auto lse = static_cast<float*>(own.logsumexp.view().data);
    if (rank.whole().pass == Pass::forward) {
      rank.compute(problem(rank), {.q = own.q.view(), .k = own.k.view(), .v = own.v.view()},
                   {.o = own.o.view(), .logsumexp = lse});
    } else {
      rank.compute(problem(rank),
                   {own.q.view(), own.k.view(), own.v.view(), own.o.view(), own.d_o.view(), lse},
                   {.dq = own.dq.view(), .dk = own.dk.view(), .dv = own.dv.view()});
    }
    rank.barrier();
    rank.begin({3, 3, StepWork::pull_results, rank.own_rows()});
    rank.wait(pull_results(rank, out));
    rank.barrier();  // until all have read, none may begin the next run
  }

 private:
  struct State {  // of the rank's heads, all tokens
    RankTensor q, k, v, o, logsumexp, d_o, dq, dk, dv;
  };

  static Problem problem(const Rank& rank) {
    Problem p = rank.block(rank.whole().q_len, rank.whole().kv_len, rank.causal());
    p.q_heads /= rank.group().ranks();
    p.kv_heads /= rank.group().ranks();
    return p;
  }

  static State make_state(Rank& rank) {
    const Problem p = problem(rank);
    const auto queries = [&](int64_t columns) {
      return rank.pulled_tensor(p.dtype, p.q_heads, p.q_len, columns);
    };
    const auto keys = [&](int64_t columns) {
      return rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, columns);
    };
    State state;
    state.q = queries(p.head_dim);
    state.k = keys(p.head_dim);
    state.v = keys(p.value_dim());
    state.o = queries(p.value_dim());
    state.logsumexp = rank.tensor(Dtype::fp32, p.q_heads, p.q_len, 1);
    if (p.pass == Pass::backward) {
      state.d_o = queries(p.value_dim());
      state.dq = queries(p.head_dim);
      state.dk = keys(p.head_dim);
      state.dv = keys(p.value_dim());
    }
    rank.reserve(p);
    return state;
  }

  // The rank's heads of all tokens.
  static int64_t pull_heads(Rank& rank, const State& own, const Inputs& in) {
    const ConstTensorView lse =
        logsumexp_view(static_cast<const void*>(in.logsumexp), rank.whole());
    int64_t last = 0;
    for (int chunk = 0; chunk < rank.tokens().chunks(); ++chunk) {
      const RowRange rows = rank.tokens().chunk(chunk);
      std::vector<std::pair<ConstTensorView, TensorView>> pulled;
      const auto take = [&](const ConstTensorView& from, const RankTensor& to) {
        const int64_t heads = to.view().heads;
        pulled.emplace_back(heads_of(rows_of(from, rows), rank.number() * heads, heads),
                            rows_of(to.view(), rows));
      };
      take(in.q, own.q);
      take(in.k, own.k);
      take(in.v, own.v);
      if (rank.whole().pass == Pass::backward) {
        take(in.o, own.o);
        take(in.d_o, own.d_o);
        take(lse, own.logsumexp);
      }
      last = rank.pull(rank.tokens().owner(chunk), pulled);
    }
    return last;
  }

  // All heads of the rank's tokens.
  int64_t pull_results(Rank& rank, const Outputs& out) const {
    const TensorView lse = logsumexp_view(static_cast<void*>(out.logsumexp), rank.whole());
    int64_t last = 0;
    for (const int chunk : rank.tokens().chunks_of(rank.number())) {
      const RowRange rows = rank.tokens().chunk(chunk);
      for (int other = 0; other < rank.group().ranks(); ++other) {
        const State& from = states_[static_cast<size_t>(other)];
        std::vector<std::pair<ConstTensorView, TensorView>> pulled;
        const auto take = [&](const RankTensor& heads, const TensorView& to) {
          const int64_t count = heads.view().heads;
          pulled.emplace_back(rows_of(heads.view(), rows),
                              heads_of(rows_of(to, rows), other * count, count));
        };
        if (rank.whole().pass == Pass::forward) {
          take(from.o, out.o);
          take(from.logsumexp, lse);
        } else {
          take(from.dq, out.dq);
          take(from.dk, out.dk);
          take(from.dv, out.dv);
        }
        last = rank.pull(other, pulled);
      }
    }
    return last;
  }

  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_ulysses(const Ranks& ranks) {
  return std::make_unique<Ulysses>(ranks);
}

}  // namespace flashbench
