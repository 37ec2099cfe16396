// ring: K and V of one rank after another, in two buffers: the next arrive while a kernel reads
// these. They are pulled from the rank that has them, or handed round by NCCL.
#include <limits>
#include <optional>
#include <vector>

#include "providers/split/algorithm.h"
#include "providers/split/key_gradients.h"

namespace flashbench {

namespace {

class Ring : public SplitAlgorithm {
 public:
  explicit Ring(const Ranks& ranks) {
    for (const auto& rank : ranks) states_.push_back(make_state(*rank));
    if (ranks.front()->whole().pass == Pass::backward) gradients_.emplace(ranks);
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    const State& state = states_[static_cast<size_t>(rank.number())];
    begin(rank, state, in);
    const int ranks = rank.group().ranks();
    int64_t arrived = 0;
    for (int step = 0; step < ranks; ++step) {
      const auto keys = rank.rows_of_rank(owner_in(rank, step));
      if (step > 0) {
        rank.begin({step + 1, steps(rank), StepWork::pull_keys, keys});
        rank.wait(arrived);
      }
      // The kernels that read that buffer, a step ago, have ended.
      if (step + 1 < ranks) arrived = fetch(rank, state, step + 1, in);
      rank.begin({step + 1, steps(rank), StepWork::attend_keys, keys});
      compute_step(rank, state, step, in);
    }
    finish(rank, state, out);
  }

 protected:
  struct Keys {
    std::array<RankTensor, 2> k, v;  // of the two chunks of a rank
  };
  struct State {
    std::array<Keys, 2> buffers;
    std::array<RankTensor, 2> o, logsumexp;  // forward: merged so far, by chunk of queries
    std::array<RankTensor, 2> step_o, step_logsumexp;  // of a block; backward the whole logsumexp
    std::array<RankTensor, 2> dq, step_dq;             // backward: summed so far, and of a block
    RankTensor step_dk, step_dv;                       // of a block

    const Keys& keys(int step) const { return buffers[static_cast<size_t>(step % 2)]; }
  };

  static RowRange chunk_of(const Rank& rank, int owner, size_t i) {
    return rank.tokens().chunk(rank.tokens().chunks_of(owner)[i]);
  }

  // Brings the keys and values of a step, but the first, into their buffer. Returns what to wait
  // for.
  virtual int64_t fetch(Rank& rank, const State& state, int step, const Inputs& in) const {
    const int owner = owner_in(rank, step);
    std::vector<std::pair<ConstTensorView, TensorView>> rows_to;
    for (size_t j = 0; j < 2; ++j) {
      const RowRange rows = chunk_of(rank, owner, j);
      rows_to.emplace_back(rows_of(in.k, rows), state.keys(step).k[j].first_rows(rows.size()));
      rows_to.emplace_back(rows_of(in.v, rows), state.keys(step).v[j].first_rows(rows.size()));
    }
    return rank.pull(owner, rows_to);
  }

 private:
  // Those of a backward pass are one for each rank, and the sum of the gradients.
  static int steps(const Rank& rank) {
    return rank.group().ranks() + (rank.whole().pass == Pass::backward ? 1 : 0);
  }

  static int owner_in(const Rank& rank, int step) {
    return (rank.number() + step) % rank.group().ranks();
  }

  static State make_state(Rank& rank) {
    const Problem& p = rank.whole();
    const int64_t chunk = rank.tokens().chunk_length();
    State state;
    for (Keys& keys : state.buffers) {
      for (size_t i = 0; i < 2; ++i) {
        keys.k[i] = rank.pulled_tensor(p.dtype, p.kv_heads, chunk, p.head_dim);
        keys.v[i] = rank.pulled_tensor(p.dtype, p.kv_heads, chunk, p.value_dim());
      }
    }
    for (size_t i = 0; i < 2; ++i) {
      const int64_t rows = chunk_of(rank, rank.number(), i).size();
      state.step_logsumexp[i] = rank.tensor(Dtype::fp32, p.q_heads, rows, 1);
      if (p.pass == Pass::forward) {
        state.logsumexp[i] = rank.tensor(Dtype::fp32, p.q_heads, rows, 1);
        state.o[i] = rank.tensor(Dtype::fp32, p.q_heads, rows, p.value_dim());
        state.step_o[i] = rank.tensor(Dtype::fp32, p.q_heads, rows, p.value_dim());
      } else {
        state.dq[i] = rank.tensor(Dtype::fp32, p.q_heads, rows, p.head_dim);
        state.step_dq[i] = rank.tensor(Dtype::fp32, p.q_heads, rows, p.head_dim);
      }
      for (int owner = 0; owner < rank.group().ranks(); ++owner) {
        for (size_t j = 0; j < 2; ++j) {
          rank.reserve(rank.block(rows, chunk_of(rank, owner, j).size(), false));
        }
      }
      rank.reserve(rank.block(rows, rows, rank.causal()));
    }
    if (p.pass == Pass::backward) {
      state.step_dk = rank.tensor(Dtype::fp32, p.kv_heads, chunk, p.head_dim);
      state.step_dv = rank.tensor(Dtype::fp32, p.kv_heads, chunk, p.value_dim());
    }
    return state;
  }

  void begin(const Rank& rank, const State& state, const Inputs& in) {
    if (gradients_) gradients_->clear(rank);
    for (size_t i = 0; i < 2; ++i) {
      const RowRange rows = chunk_of(rank, rank.number(), i);
      if (rank.whole().pass == Pass::forward) {
        rank.fill(state.o[i].view(), 0);
        rank.fill(state.logsumexp[i].view(), -std::numeric_limits<float>::infinity());
      } else {
        rank.fill(state.dq[i].view(), 0);
        const ConstTensorView all =
            logsumexp_view(static_cast<const void*>(in.logsumexp), rank.whole());
        rank.store(rows_of(all, rows), state.step_logsumexp[i].view());
      }
    }
  }

  // All blocks of the rank's queries with the keys of the step.
  void compute_step(const Rank& rank, const State& state, int step, const Inputs& in) {
    const int owner = owner_in(rank, step);
    const Keys& buffer = state.keys(step);
    for (size_t i = 0; i < 2; ++i) {
      for (size_t j = 0; j < 2; ++j) {
        const RowRange queries = chunk_of(rank, rank.number(), i), keys = chunk_of(rank, owner, j);
        const bool later = rank.causal() && keys.first > queries.first;
        if (queries.empty() || keys.empty() || later) continue;
        const bool diagonal = rank.causal() && keys.first == queries.first;
        Inputs block{.q = rows_of(in.q, queries),
                     .k = buffer.k[j].first_rows(keys.size()),
                     .v = buffer.v[j].first_rows(keys.size())};
        if (step == 0) {  // its own
          block.k = rows_of(in.k, keys);
          block.v = rows_of(in.v, keys);
        }
        const Problem p = rank.block(queries.size(), keys.size(), diagonal);
        if (p.pass == Pass::forward) {
          forward(rank, state, i, p, block);
        } else {
          block.o = rows_of(in.o, queries);
          block.d_o = rows_of(in.d_o, queries);
          backward(rank, state, i, p, keys, block);
        }
      }
    }
  }

  static void forward(const Rank& rank, const State& state, size_t i, const Problem& p,
                      const Inputs& block) {
    const TensorView o = state.step_o[i].view(), lse = state.step_logsumexp[i].view();
    rank.compute(p, block, {.o = o, .logsumexp = static_cast<float*>(lse.data)});
    rank.merge(state.o[i].view(), state.logsumexp[i].view(), o, lse);
  }

  // Every block takes the logsumexp over all keys, not over its own.
  void backward(const Rank& rank, const State& state, size_t i, const Problem& p, RowRange keys,
                Inputs& block) {
    const TensorView dq = state.step_dq[i].view();
    const TensorView dk = state.step_dk.first_rows(keys.size());
    const TensorView dv = state.step_dv.first_rows(keys.size());
    block.logsumexp = static_cast<const float*>(state.step_logsumexp[i].view().data);
    rank.compute(p, block, {.dq = dq, .dk = dk, .dv = dv});
    rank.add(state.dq[i].view(), dq);
    gradients_->add(rank, keys, dk, dv);
  }

  void finish(Rank& rank, const State& state, const Outputs& out) {
    for (size_t i = 0; i < 2; ++i) {
      const RowRange rows = chunk_of(rank, rank.number(), i);
      if (rank.whole().pass == Pass::forward) {
        const TensorView all = logsumexp_view(static_cast<void*>(out.logsumexp), rank.whole());
        rank.store(state.o[i].view(), rows_of(out.o, rows));
        rank.store(state.logsumexp[i].view(), rows_of(all, rows));
      } else {
        rank.store(state.dq[i].view(), rows_of(out.dq, rows));
      }
    }
    if (gradients_) gradients_->bring_home(rank, out, {steps(rank), steps(rank)});
  }

  std::vector<State> states_;
  std::optional<KeyGradients> gradients_;
};

// In each step a rank sends the keys and values that it has to the rank before it, and receives
// those of the rank behind it: whole buffers, also where a chunk has fewer rows.
class NcclRing final : public Ring {
 public:
  using Ring::Ring;

 private:
  int64_t fetch(Rank& rank, const State& state, int step, const Inputs& in) const override {
    const int ranks = rank.group().ranks();
    const int before = (rank.number() + ranks - 1) % ranks, behind = (rank.number() + 1) % ranks;
    const Keys &held = state.keys(step - 1), &next = state.keys(step);
    std::vector<NcclSend> sends;
    std::vector<NcclReceive> receives;
    const auto hand_on = [&](const TensorView& from, const TensorView& to,
                             const ConstTensorView& own) {
      const size_t bytes = static_cast<size_t>(to.elements() * element_size(to.dtype));
      sends.push_back({before, step == 1 ? dense(rank, own, from, bytes) : from.data, bytes});
      receives.push_back({behind, to.data, bytes});
    };
    for (size_t j = 0; j < 2; ++j) {
      const RowRange rows = chunk_of(rank, rank.number(), j);
      hand_on(held.k[j].view(), next.k[j].view(), rows_of(in.k, rows));
      hand_on(held.v[j].view(), next.v[j].view(), rows_of(in.v, rows));
    }
    return rank.exchange(sends, receives);
  }

  // A rank's own rows as NCCL takes them, in one piece: in place, or copied into a buffer.
  static const void* dense(Rank& rank, const ConstTensorView& rows, const TensorView& buffer,
                           size_t bytes) {
    const TensorView to = rows_of(buffer, {0, rows.length});
    const std::vector<RowCopy> copies = copies_of(rows, to);
    if (copies.size() == 1 && copies.front().height == 1 && copies.front().width == bytes) {
      return rows.data;
    }
    rank.wait(rank.pull(rank.number(), {{rows, to}}));  // it has a stream of its own
    return buffer.data;
  }
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_ring(const Ranks& ranks) {
  return std::make_unique<Ring>(ranks);
}

std::unique_ptr<SplitAlgorithm> make_nccl_ring(const Ranks& ranks) {
  return std::make_unique<NcclRing>(ranks);
}

}  // namespace flashbench
