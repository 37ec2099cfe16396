// ulysses on GPUs, forward: one launch computes all tokens of a rank's heads. It reads the rank's
// own rows where they are and those of others as they come, head after head, and stores O where it
// belongs, in the memory of the tokens' owner.
#include <algorithm>
#include <utility>
#include <vector>

#include "providers/split/algorithm.h"

namespace flashbench {

namespace {

// Parts are half of the tokens of a few heads, the last tokens first, as the kernel goes through
// them. With a zigzag each other rank has as much of every part.
class HeadParts {
 public:
  explicit HeadParts(const Rank& rank)
      : all_(rank.own_kv_heads()), rows_(rank.tokens().tokens / 2) {
    // What links move in the time that copy engines take to begin with three tensors. The kernel
    // goes through about as many heads together, too.
    constexpr int64_t kLeastBytes = int64_t{8} << 20;
    const Problem p = rank.block_of_heads({0, 1});
    const int64_t others = rank.group().ranks() - 1;
    const int64_t head_bytes = element_size(p.dtype) * p.batch * others *
                               rank.tokens().chunk_length() *
                               (p.q_heads * p.head_dim + p.head_dim + p.value_dim());
    const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    heads_ =
        std::min(all_.size(), std::max(divide_up(kLeastBytes, head_bytes),
                                       divide_up(2 * all_.size(), DeviceGroup::kArrivalWords)));
    count_ = static_cast<int>(2 * divide_up(all_.size(), heads_));
  }

  int64_t rows() const { return rows_; }
  int64_t heads() const { return heads_; }
  int count() const { return count_; }
  // In the order in which they arrive.
  RowRange kv_heads_of_part(int part) const {
    const int64_t first = all_.first + part / 2 * heads_;
    return {first, std::min(first + heads_, all_.end)};
  }
  RowRange rows_of_part(int part) const {
    return part % 2 == 0 ? RowRange{rows_, 2 * rows_} : RowRange{0, rows_};
  }

 private:
  RowRange all_;
  int64_t rows_, heads_ = 0;
  int count_ = 0;
};

class UlyssesShare final : public SplitAlgorithm {
 public:
  explicit UlyssesShare(const Ranks& ranks) {
    for (const auto& rank : ranks) states_.push_back(make_state(*rank));
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    const State& state = states_[static_cast<size_t>(rank.number())];
    const RowRange kv_heads = rank.own_kv_heads(), q_heads = rank.q_heads_of(kv_heads);
    const DeviceGroup::Arrivals arrivals = rank.group().arrivals(rank.number());
    const kernels::Share share{.queries = {RowRange{0, 0}, RowRange{0, rank.whole().q_len}},
                               .own_rows = rank.own_rows(),
                               .own_q = heads_of(in.q, q_heads),
                               .own_k = heads_of(in.k, kv_heads),
                               .own_v = heads_of(in.v, kv_heads),
                               .part_rows = state.parts.rows(),
                               .part_heads = state.parts.heads(),
                               .arrived = arrivals.words,
                               .run = arrivals.run};
    rank.begin({1, 1, StepWork::attend_heads, {q_heads}});
    rank.fetch(rows_of_part(rank, state, 0, in));
    rank.announce(0);
    for (int part = 1; part < state.parts.count(); ++part) {
      pull(rank, rows_of_part(rank, state, part, in));
      rank.announce(part);
    }
    // The kernel takes that of all its heads and requests side by side.
    const TensorView lse =
        heads_of(logsumexp_view(static_cast<void*>(out.logsumexp), rank.whole()), q_heads);
    const bool in_place = rank.whole().batch == 1;
    rank.compute(
        rank.block_of_heads(kv_heads),
        {.q = state.q.view(), .k = state.k.view(), .v = state.v.view()},
        {.o = heads_of(out.o, q_heads),
         .logsumexp = static_cast<float*>(in_place ? lse.data : state.logsumexp.view().data)},
        nullptr, &share);
    if (!in_place) rank.store(state.logsumexp.view(), lse);
  }

 private:
  struct State {
    HeadParts parts;
    RankTensor q, k, v, logsumexp;  // of the rank's heads, all tokens
  };

  static State make_state(Rank& rank) {
    const Problem p = rank.block_of_heads(rank.own_kv_heads());
    rank.reserve(p);
    return {HeadParts(rank), rank.pulled_tensor(p.dtype, p.q_heads, p.q_len, p.head_dim),
            rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.head_dim),
            rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.value_dim()),
            rank.tensor(Dtype::fp32, p.q_heads, p.q_len, 1)};
  }

  // A copy within a GPU is a kernel, which would never run beside one that fills the GPU and waits
  // for it; so it is waited for.
  static void pull(Rank& rank, const std::vector<Rank::RowsFrom>& part) {
    const int64_t pull = rank.pull_from(part);
    const auto gpu_of = [&](int r) { return rank.group().info(r).index; };
    const bool within_gpu = std::ranges::any_of(part, [&](const Rank::RowsFrom& source) {
      return gpu_of(source.owner) == gpu_of(rank.number());
    });
    if (within_gpu) rank.wait(pull);
  }

  // What each other rank has of a part. The next rank is the first, so that not all begin with the
  // same.
  static std::vector<Rank::RowsFrom> rows_of_part(const Rank& rank, const State& state, int part,
                                                  const Inputs& in) {
    const RowRange own = rank.own_kv_heads(), kv_heads = state.parts.kv_heads_of_part(part);
    const RowRange half = state.parts.rows_of_part(part);
    std::vector<Rank::RowsFrom> sources;
    for (int i = 1; i < rank.group().ranks(); ++i) {
      const int owner = (rank.number() + i) % rank.group().ranks();
      Rank::RowsFrom& source = sources.emplace_back(Rank::RowsFrom{owner, {}});
      for (const RowRange chunk : rank.rows_of_rank(owner)) {
        const RowRange rows{std::max(chunk.first, half.first), std::min(chunk.end, half.end)};
        if (rows.first >= rows.end) continue;
        const auto take = [&](const ConstTensorView& from, RowRange heads, int64_t first_own,
                              const RankTensor& to) {
          const RowRange in_own{heads.first - first_own, heads.end - first_own};
          source.rows.emplace_back(rows_of(heads_of(from, heads), rows),
                                   rows_of(heads_of(to.view(), in_own), rows));
        };
        take(in.q, rank.q_heads_of(kv_heads), rank.q_heads_of(own).first, state.q);
        take(in.k, kv_heads, own.first, state.k);
        take(in.v, kv_heads, own.first, state.v);
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
