// gated on CPUs: a kernel starts at once and waits for each chunk of keys. Backward, what a rank
// adds to dK and dV of another's chunk goes home as soon as its last tile is done, while the kernel
// goes on.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "providers/split/algorithm.h"
#include "providers/split/all_keys.h"
#include "providers/split/key_gradients.h"

namespace flashbench {

namespace {

// Keys arrive chunk after chunk.
class ChunkGate : public kernels::KeyGate {
 public:
  ChunkGate(const Rank& rank, const std::vector<int64_t>& pulls, const RankStep& step)
      : rank_(rank), pulls_(pulls), step_(step) {
    rank.begin(step);
  }

  void wait(int64_t end) const override {
    const auto last = static_cast<int>((end - 1) / rank_.tokens().chunk_length());
    if (last <= arrived_.load()) return;
    rank_.begin({step_.number, step_.count, StepWork::pull_keys, {rank_.tokens().chunk(last)}});
    rank_.wait(pulls_[static_cast<size_t>(last)]);
    rank_.begin(step_);
    int before = arrived_.load();
    while (before < last && !arrived_.compare_exchange_weak(before, last)) {
    }
  }

 protected:
  const Rank& rank_;

 private:
  const std::vector<int64_t>& pulls_;
  const RankStep step_;
  mutable std::atomic<int> arrived_{-1};  // the last chunk that is known to be there
};

// What a rank's queries add to dK and dV of all tokens.
class Contribution {
 public:
  explicit Contribution(const Rank& rank) : rank_(rank) {
    const Problem& p = rank.whole();
    for (size_t i = 0; i < 2; ++i) {
      dk_[i] = rank.tensor(Dtype::fp32, p.kv_heads, p.kv_len, p.head_dim);
      dv_[i] = rank.tensor(Dtype::fp32, p.kv_heads, p.kv_len, p.value_dim());
    }
  }

  const TensorView& dk(size_t i) const { return dk_[i].view(); }  // from chunk i of the queries
  const TensorView& dv(size_t i) const { return dv_[i].view(); }

  // The second chunk of queries comes first: it alone sees the later chunks of keys, which can go
  // home while the first is computed. So the first, if it sees a chunk of keys, is the last to.
  static constexpr std::array<size_t, 2> kOrder{1, 0};
  size_t last_to_see(int chunk) const { return sees(0, chunk) ? 0 : 1; }

  // Both chunks of queries have been computed with this chunk of keys. The sum is that of the last.
  void complete(int chunk) const {
    const RowRange keys = rank_.tokens().chunk(chunk);
    if (last_to_see(chunk) == 0 && sees(1, chunk)) {
      add_rows(rows_of(dk(0), keys), rows_of(dk(1), keys));
      add_rows(rows_of(dv(0), keys), rows_of(dv(1), keys));
    }
    rank_.group().set_mark(rank_.number(), chunk);
  }

 private:
  bool sees(size_t i, int chunk) const {
    const int own = rank_.tokens().chunks_of(rank_.number())[i];
    return !rank_.tokens().chunk(own).empty() && (!rank_.causal() || own >= chunk);
  }

  const Rank& rank_;
  std::array<RankTensor, 2> dk_, dv_;
};

// Chunks of gradients leave one after another.
class GradientGate final : public ChunkGate {
 public:
  GradientGate(const Rank& rank, const std::vector<int64_t>& pulls, const RankStep& step,
               const Contribution& contribution, size_t queries)
      : ChunkGate(rank, pulls, step), contribution_(contribution), queries_(queries) {
    const int chunks = rank.tokens().chunks();
    left_ = std::make_unique<std::atomic<int64_t>[]>(static_cast<size_t>(chunks));
    for (int chunk = 0; chunk < chunks; ++chunk) {
      left_[static_cast<size_t>(chunk)] =
          rank.whole().batch * rank.whole().kv_heads * rank.tokens().chunk(chunk).size();
    }
  }

  void finished(RowRange keys) const override {
    while (!keys.empty()) {
      const auto chunk = static_cast<int>(keys.first / rank_.tokens().chunk_length());
      const RowRange rows{keys.first, std::min(keys.end, rank_.tokens().chunk(chunk).end)};
      keys.first = rows.end;
      const bool last = left_[static_cast<size_t>(chunk)].fetch_sub(rows.size()) == rows.size();
      if (last && contribution_.last_to_see(chunk) == queries_) contribution_.complete(chunk);
    }
  }

 private:
  const Contribution& contribution_;
  size_t queries_;                                // first or second chunk
  std::unique_ptr<std::atomic<int64_t>[]> left_;  // rows of each chunk, of all heads
};

class Gated final : public SplitAlgorithm {
 public:
  explicit Gated(const Ranks& ranks) {
    for (const auto& rank : ranks) states_.push_back(make_state(*rank));
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    const State& state = states_[static_cast<size_t>(rank.number())];
    const std::vector<int64_t> pulls = state.keys.pull(rank, in);
    if (rank.whole().pass == Pass::forward) {
      for (size_t i = 0; i < 2; ++i) {
        const ChunkGate gate(rank, pulls, step(rank, 1 + static_cast<int>(i), 2, i));
        state.keys.forward(rank, i, in, out, &gate);
      }
      return rank.wait(pulls.back());
    }
    const auto arrivals = pull_gradients(rank, state);
    if (rank.part() == GroupPart::copying) set_marks(rank);
    for (const size_t i : Contribution::kOrder) {
      const GradientGate gate(rank, pulls, step(rank, 2 - static_cast<int>(i), 3, i), *state.own,
                              i);
      state.keys.backward(rank, i, in, out.dq, state.own->dk(i), state.own->dv(i), &gate);
    }
    rank.begin({3, 3, StepWork::sum_gradients, rank.own_rows()});
    for (size_t i = 0; i < 2; ++i) {
      rank.fill(state.dk[i].view(), 0);
      rank.fill(state.dv[i].view(), 0);
    }
    for (const Arrival& arrival : arrivals) add(rank, state, arrival);
    for (size_t i = 0; i < 2; ++i) {
      const RowRange rows = rank.own_rows()[i];
      rank.store(state.dk[i].view(), rows_of(out.dk, rows));
      rank.store(state.dv[i].view(), rows_of(out.dv, rows));
    }
    rank.barrier();  // until all have read, none may begin the next run
  }

 private:
  struct State {
    AllKeys keys;
    std::unique_ptr<Contribution> own;  // backward
    // Of the rank's own chunks: what each rank adds to them, and the sum.
    std::array<std::vector<RankTensor>, 2> other_dk, other_dv;
    std::array<RankTensor, 2> dk, dv;
  };
  struct Arrival {
    size_t i;  // first or second chunk
    int from;
    int64_t pull;
  };

  static State make_state(Rank& rank) {
    const Problem& p = rank.whole();
    State state{AllKeys(rank), {}, {}, {}, {}, {}};
    if (p.pass == Pass::forward) return state;
    state.own = std::make_unique<Contribution>(rank);
    for (size_t i = 0; i < 2; ++i) {
      const int64_t rows = rank.own_rows()[i].size();
      state.dk[i] = rank.tensor(Dtype::fp32, p.kv_heads, rows, p.head_dim);
      state.dv[i] = rank.tensor(Dtype::fp32, p.kv_heads, rows, p.value_dim());
      for (int other = 0; other < rank.group().ranks(); ++other) {
        state.other_dk[i].push_back(rank.tensor(Dtype::fp32, p.kv_heads, rows, p.head_dim));
        state.other_dv[i].push_back(rank.tensor(Dtype::fp32, p.kv_heads, rows, p.value_dim()));
      }
    }
    return state;
  }

  static RankStep step(const Rank& rank, int number, int count, size_t i) {
    return {number, count, StepWork::attend_queries, {rank.own_rows()[i]}};
  }

  // In the order in which others complete them, and of a chunk in the order of the ranks.
  std::vector<Arrival> pull_gradients(Rank& rank, const State& state) const {
    std::vector<Arrival> arrivals;
    for (const size_t i : Contribution::kOrder) {
      const int chunk = rank.tokens().chunks_of(rank.number())[i];
      const RowRange rows = rank.tokens().chunk(chunk);
      for (int from = 0; from < rank.group().ranks(); ++from) {
        if (rows.empty() || !sees_keys(rank, from, chunk)) continue;
        const Contribution& other = *states_[static_cast<size_t>(from)].own;
        const size_t sum = other.last_to_see(chunk);
        const auto at = static_cast<size_t>(from);
        arrivals.push_back(
            {i, from,
             rank.pull(from,
                       {{rows_of(other.dk(sum), rows), state.other_dk[i][at].view()},
                        {rows_of(other.dv(sum), rows), state.other_dv[i][at].view()}},
                       chunk)});
      }
    }
    return arrivals;
  }

  // Where nothing is computed, all is complete.
  static void set_marks(const Rank& rank) {
    for (int chunk = 0; chunk < rank.tokens().chunks(); ++chunk) {
      rank.group().set_mark(rank.number(), chunk);
    }
  }

  static void add(const Rank& rank, const State& state, const Arrival& arrival) {
    const size_t i = arrival.i, from = static_cast<size_t>(arrival.from);
    rank.wait_for_others(arrival.pull);
    rank.add(state.dk[i].view(), state.other_dk[i][from].view());
    rank.add(state.dv[i].view(), state.other_dv[i][from].view());
  }

  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_gated(const Ranks& ranks) {
  const Rank& any = *ranks.front();
  if (any.group().info(0).kind == DeviceKind::cpu) return std::make_unique<Gated>(ranks);
  return any.whole().pass == Pass::forward ? make_gated_share(ranks) : make_gated_backward(ranks);
}

}  // namespace flashbench
