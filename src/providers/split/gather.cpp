// gather and gated: K and V of all tokens come to each device.
#include <optional>
#include <vector>

#include "providers/split/algorithm.h"
#include "providers/split/key_gradients.h"

namespace flashbench {

namespace {

// Keys arrive chunk after chunk.
class ChunkGate final : public kernels::KeyGate {
 public:
  ChunkGate(const Rank& rank, const std::vector<int64_t>& pulls) : rank_(rank), pulls_(pulls) {}

  void wait(int64_t end) const override {
    const int64_t last = (end - 1) / rank_.tokens().chunk_length();
    rank_.wait(pulls_[static_cast<size_t>(last)]);
  }

 private:
  const Rank& rank_;
  const std::vector<int64_t>& pulls_;
};

class Gather final : public SplitAlgorithm {
 public:
  Gather(const Ranks& ranks, bool gated) : gated_(gated) {
    for (const auto& rank : ranks) states_.push_back(make_state(*rank));
    if (ranks.front()->whole().pass == Pass::backward) gradients_.emplace(ranks);
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    const State& state = states_[static_cast<size_t>(rank.number())];
    const std::vector<int64_t> pulls = pull_keys(rank, state, in);
    const ChunkGate gate(rank, pulls);
    if (!gated_) rank.wait(pulls.back());
    if (gradients_) gradients_->clear(rank);
    for (size_t i = 0; i < 2; ++i) {
      const RowRange rows = rank.tokens().chunk(rank.tokens().chunks_of(rank.number())[i]);
      if (rows.empty()) continue;
      if (rank.whole().pass == Pass::forward) {
        forward(rank, state, rows, i, in, out, gated_ ? &gate : nullptr);
      } else {
        backward(rank, state, rows, i, in, out);
      }
    }
    rank.wait(pulls.back());
    if (gradients_) gradients_->bring_home(rank, out);
  }

 private:
  struct State {
    RankTensor k, v;                      // of all tokens
    std::array<RankTensor, 2> logsumexp;  // of the rank's chunks
    RankTensor dk, dv;                    // of all tokens, from one chunk of queries
  };

  // The keys that a chunk of queries sees, from the first on.
  static int64_t keys_of(const Rank& rank, RowRange rows) {
    return rank.causal() ? rows.end : rank.tokens().tokens;
  }

  static State make_state(Rank& rank) {
    const Problem& p = rank.whole();
    State state{rank.tensor(p.dtype, p.kv_heads, p.kv_len, p.head_dim),
                rank.tensor(p.dtype, p.kv_heads, p.kv_len, p.value_dim()),
                {},
                {},
                {}};
    for (size_t i = 0; i < 2; ++i) {
      const RowRange rows = rank.tokens().chunk(rank.tokens().chunks_of(rank.number())[i]);
      state.logsumexp[i] = rank.tensor(Dtype::fp32, p.q_heads, rows.size(), 1);
      rank.reserve(rank.block(rows.size(), keys_of(rank, rows), rank.causal()));
    }
    if (p.pass == Pass::backward) {
      state.dk = rank.tensor(Dtype::fp32, p.kv_heads, p.kv_len, p.head_dim);
      state.dv = rank.tensor(Dtype::fp32, p.kv_heads, p.kv_len, p.value_dim());
    }
    return state;
  }

  static std::vector<int64_t> pull_keys(Rank& rank, const State& state, const Inputs& in) {
    std::vector<int64_t> pulls;
    for (int chunk = 0; chunk < rank.tokens().chunks(); ++chunk) {
      const RowRange rows = rank.tokens().chunk(chunk);
      pulls.push_back(rank.pull(rank.tokens().owner(chunk),
                                {{rows_of(in.k, rows), rows_of(state.k.view(), rows)},
                                 {rows_of(in.v, rows), rows_of(state.v.view(), rows)}}));
    }
    return pulls;
  }

  static void forward(const Rank& rank, const State& state, RowRange rows, size_t i,
                      const Inputs& in, const Outputs& out, const kernels::KeyGate* gate) {
    const int64_t keys = keys_of(rank, rows);
    const TensorView lse = state.logsumexp[i].view();
    rank.compute(
        rank.block(rows.size(), keys, rank.causal()),
        {.q = rows_of(in.q, rows), .k = state.k.first_rows(keys), .v = state.v.first_rows(keys)},
        {.o = rows_of(out.o, rows), .logsumexp = static_cast<float*>(lse.data)}, gate);
    store_rows_as(rank, lse,
                  rows_of(logsumexp_view(static_cast<void*>(out.logsumexp), rank.whole()), rows));
  }

  void backward(const Rank& rank, const State& state, RowRange rows, size_t i, const Inputs& in,
                const Outputs& out) {
    const int64_t keys = keys_of(rank, rows);
    const TensorView lse = state.logsumexp[i].view();
    const TensorView dk = state.dk.first_rows(keys), dv = state.dv.first_rows(keys);
    store_rows_as(
        rank, rows_of(logsumexp_view(static_cast<const void*>(in.logsumexp), rank.whole()), rows),
        lse);
    rank.compute(rank.block(rows.size(), keys, rank.causal()),
                 {rows_of(in.q, rows), state.k.first_rows(keys), state.v.first_rows(keys),
                  rows_of(in.o, rows), rows_of(in.d_o, rows), static_cast<float*>(lse.data)},
                 {.dq = rows_of(out.dq, rows), .dk = dk, .dv = dv});
    gradients_->add(rank, {0, keys}, dk, dv);
  }

  bool gated_;
  std::vector<State> states_;
  std::optional<KeyGradients> gradients_;
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_gather(const Ranks& ranks) {
  return std::make_unique<Gather>(ranks, false);
}
std::unique_ptr<SplitAlgorithm> make_gated(const Ranks& ranks) {
  return std::make_unique<Gather>(ranks, true);
}

}  // namespace flashbench
