// gated on GPUs, backward: a launch for each chunk of a rank's queries. Its thread blocks load K
// and V of other ranks from where they are, each block of keys while they compute with the one
// before, and add what the queries contribute to dK and dV to sums in the memory of the keys'
// owners. These round their own in the end.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "providers/split/algorithm.h"
#include "providers/split/all_keys.h"

namespace flashbench {

namespace {

// Sums of dK and dV for all tokens: fp32, in an order that the kernels know.
struct GradientSums {
  RankTensor dk, dv;

  kernels::KeySums key_sums() const {
    return {static_cast<float*>(dk.view().data), static_cast<float*>(dv.view().data),
            dk.view().length};
  }
};

// The rows of the sums of a head.
int64_t sum_rows(const Rank& rank) {
  constexpr int64_t kRows = kernels::kKeySumRows;
  return (rank.whole().kv_len + kRows - 1) / kRows * kRows;
}

class GatedBackward final : public SplitAlgorithm {
 public:
  explicit GatedBackward(const Ranks& ranks) {
    const Rank& any = *ranks.front();
    const auto sums = [&] {
      return any.tensor_for_all(Dtype::fp32, any.whole().kv_heads, sum_rows(any),
                                any.key_sum_columns());
    };
    sums_ = {sums(), sums()};
    for (const auto& rank : ranks) {
      ranks_.push_back(rank.get());
      states_.push_back(make_state(*rank));
    }
  }

  // Ranks that only compute, or only copy, do that with keys and sums of their own.
  void prepare(GroupPart part) override {
    if (part == GroupPart::everything) return;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (!states_[i].own) states_[i].own = make_own(*ranks_[i]);
    }
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    State& state = states_[static_cast<size_t>(rank.number())];
    if (state.own && !state.own->has_keys) bring_keys(rank, *state.own, in);
    rank.begin({1, 4, StepWork::sum_gradients, rank.own_rows()});
    clear(rank);
    rank.barrier();
    for (const size_t i : {1, 0}) {  // the longer one first
      rank.begin({3 - static_cast<int>(i), 4, StepWork::attend_queries, {rank.own_rows()[i]}});
      attend(rank, state, i, in, out);
    }
    rank.barrier();
    rank.begin({4, 4, StepWork::sum_gradients, rank.own_rows()});
    for (const RowRange rows : rank.own_rows()) rank.store_key_sums(sums_.key_sums(), rows, out);
  }

 private:
  // In the rank's memory: K and V of all tokens, and sums.
  struct Own {
    RankTensor k, v;
    GradientSums sums;
    bool has_keys = false;
  };
  struct State {
    std::array<RankTensor, 2> logsumexp;  // of the rank's chunks
    std::optional<Own> own;
  };

  static State make_state(Rank& rank) {
    State state;
    for (size_t i = 0; i < 2; ++i) {
      const RowRange rows = rank.own_rows()[i];
      state.logsumexp[i] = rank.tensor(Dtype::fp32, rank.whole().q_heads, rows.size(), 1);
      rank.reserve(rank.block(rows.size(), AllKeys::keys_of(rank, rows), rank.causal()));
    }
    return state;
  }

  static Own make_own(const Rank& rank) {
    const Problem& p = rank.whole();
    const auto sums = [&] {
      return rank.tensor(Dtype::fp32, p.kv_heads, sum_rows(rank), rank.key_sum_columns());
    };
    return {.k = rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.head_dim),
            .v = rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.value_dim()),
            .sums = {sums(), sums()}};
  }

  static void bring_keys(const Rank& rank, Own& own, const Inputs& in) {
    rank.copy({{rank.number(), {{in.k, own.k.view()}, {in.v, own.v.view()}}}});
    own.has_keys = true;
  }

  // The last rows with those behind them, among which the kernels' order may put elements.
  void clear(const Rank& rank) const {
    for (RowRange rows : rank.own_rows()) {
      if (!rows.empty() && rows.end == rank.tokens().tokens) rows.end = sums_.dk.view().length;
      rank.fill(rows_of(sums_.dk.view(), rows), 0);
      rank.fill(rows_of(sums_.dv.view(), rows), 0);
    }
  }

  void attend(Rank& rank, const State& state, size_t chunk, const Inputs& in,
              const Outputs& out) const {
    const RowRange rows = rank.own_rows()[chunk];
    if (rows.empty()) return;
    const RowRange keys{0, AllKeys::keys_of(rank, rows)};
    if (rank.part() == GroupPart::copying) return copy_alone(rank, *state.own, keys.end, in);
    const bool alone = rank.part() == GroupPart::computing;
    if (!alone) count(rank, keys.end, in);
    const TensorView lse = state.logsumexp[chunk].view();
    rank.store(rows_of(logsumexp_view(static_cast<const void*>(in.logsumexp), rank.whole()), rows),
               lse);
    rank.compute_into_sums(rank.block(rows.size(), keys.end, rank.causal()),
                           {.q = rows_of(in.q, rows),
                            .k = rows_of(alone ? state.own->k.view() : in.k, keys),
                            .v = rows_of(alone ? state.own->v.view() : in.v, keys),
                            .o = rows_of(in.o, rows),
                            .d_o = rows_of(in.d_o, rows),
                            .logsumexp = static_cast<float*>(lse.data)},
                           rows_of(out.dq, rows), (alone ? state.own->sums : sums_).key_sums());
  }

  // Calls visit(owner, rows) with the rows of others before `end`.
  template <typename Visit>
  static void for_others(const Rank& rank, int64_t end, const Visit& visit) {
    for (int owner = 0; owner < rank.group().ranks(); ++owner) {
      if (owner == rank.number()) continue;
      for (const RowRange chunk : rank.rows_of_rank(owner)) {
        const RowRange rows{chunk.first, std::min(chunk.end, end)};
        if (rows.first < rows.end) visit(owner, rows);
      }
    }
  }

  void count(Rank& rank, int64_t keys, const Inputs& in) const {
    for_others(rank, keys, [&](int owner, RowRange rows) {
      rank.count_read(owner, rows_of(in.k, rows));
      rank.count_read(owner, rows_of(in.v, rows));
      rank.count_added(owner, rows_of(sums_.dk.view(), rows));
      rank.count_added(owner, rows_of(sums_.dv.view(), rows));
    });
  }

  void copy_alone(Rank& rank, const Own& own, int64_t keys, const Inputs& in) const {
    std::vector<Rank::RowsFrom> sources;
    for_others(rank, keys, [&](int owner, RowRange rows) {
      sources.push_back({owner,
                         {{rows_of(in.k, rows), rows_of(own.k.view(), rows)},
                          {rows_of(in.v, rows), rows_of(own.v.view(), rows)},
                          {rows_of(own.sums.dk.view(), rows), rows_of(sums_.dk.view(), rows)},
                          {rows_of(own.sums.dv.view(), rows), rows_of(sums_.dv.view(), rows)}}});
    });
    rank.fetch(sources);
  }

  GradientSums sums_;  // each token's in the memory of its owner
  std::vector<Rank*> ranks_;
  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_gated_backward(const Ranks& ranks) {
  return std::make_unique<GatedBackward>(ranks);
}

}  // namespace flashbench
