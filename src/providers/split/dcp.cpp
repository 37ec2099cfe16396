// dcp: each device has a part of the keys (decode context parallelism). All compute with all
// queries, then each merges the partial results of its own heads, which it reads where they are.
#include <array>
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
    State& own = states_[static_cast<size_t>(rank.number())];
    const KeySplit& split = own.keys.split();
    const RowRange heads = split.heads(rank.number());
    const size_t turn = own.runs++ % own.results.size();
    rank.begin({1, 2, StepWork::attend_keys, {split.keys(rank.number())}});
    own.keys.compute(rank, in, own.results[turn].rows());
    rank.barrier();
    rank.begin({2, 2, StepWork::merge_heads, {heads}});
    std::vector<PartialRows> parts;  // in the order of the keys
    for (const State& from : states_) parts.push_back(from.results[turn].heads(heads));
    const TensorView lse = logsumexp_view(static_cast<void*>(out.logsumexp), rank.whole());
    rank.merge_parts(parts, heads_of(out.o, heads), heads_of(lse, heads));
  }

 private:
  // Results lie in two places in turns, so that no rank waits at the end until the others have read
  // its own: before it writes to the same place again, all have come to the barrier of the run
  // between, and so have ended their merging.
  struct State {
    KeyPart keys;
    std::array<KeyPart::Results, 2> results;
    size_t runs = 0;
  };

  static State make_state(Rank& rank) {
    return {KeyPart(rank), {KeyPart::results(rank), KeyPart::results(rank)}};
  }

  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_dcp(const Ranks& ranks) {
  return std::make_unique<Dcp>(ranks);
}

}  // namespace flashbench
