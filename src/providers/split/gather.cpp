// gather: K and V of all tokens come to each device, then it computes.
#include <optional>
#include <vector>

#include "providers/split/algorithm.h"
#include "providers/split/all_keys.h"
#include "providers/split/key_gradients.h"

namespace flashbench {

namespace {

class Gather final : public SplitAlgorithm {
 public:
  explicit Gather(const Ranks& ranks) {
    for (const auto& rank : ranks) states_.push_back(make_state(*rank));
    if (ranks.front()->whole().pass == Pass::backward) gradients_.emplace(ranks);
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    const State& state = states_[static_cast<size_t>(rank.number())];
    const int steps = gradients_ ? 4 : 3;
    rank.begin({1, steps, StepWork::pull_keys, {RowRange{0, rank.tokens().tokens}}});
    rank.wait(state.keys.pull(rank, in).back());
    if (gradients_) gradients_->clear(rank);
    for (size_t i = 0; i < 2; ++i) {
      const RowRange rows = rank.own_rows()[i];
      rank.begin({2 + static_cast<int>(i), steps, StepWork::attend_queries, {rows}});
      if (!gradients_) {
        state.keys.forward(rank, i, in, out);
      } else if (!rows.empty()) {
        const RowRange keys{0, AllKeys::keys_of(rank, rows)};
        const TensorView dk = state.dk.first_rows(keys.end), dv = state.dv.first_rows(keys.end);
        state.keys.backward(rank, i, in, out.dq, dk, dv);
        gradients_->add(rank, keys, dk, dv);
      }
    }
    if (gradients_) gradients_->bring_home(rank, out, {steps, steps});
  }

 private:
  struct State {
    AllKeys keys;
    RankTensor dk, dv;  // of all tokens, from one chunk of queries
  };

  static State make_state(Rank& rank) {
    const Problem& p = rank.whole();
    State state{AllKeys(rank), {}, {}};
    if (p.pass == Pass::backward) {
      state.dk = rank.tensor(Dtype::fp32, p.kv_heads, p.kv_len, p.head_dim);
      state.dv = rank.tensor(Dtype::fp32, p.kv_heads, p.kv_len, p.value_dim());
    }
    return state;
  }

  std::vector<State> states_;
  std::optional<KeyGradients> gradients_;
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_gather(const Ranks& ranks) {
  return std::make_unique<Gather>(ranks);
}

}  // namespace flashbench
