// ulysses: from a part of the tokens of all heads to all tokens of a part of the heads. A rank
// pulls its heads in groups and computes each while the next ones arrive; a GPU fetches the first
// group by a kernel. The kernels store the results where they belong, in the memory of the tokens'
// owner.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "providers/split/algorithm.h"

namespace flashbench {

namespace {

// How many of the rank's K/V heads each group has. The first group delays everything, so that it is
// as small as its launch allows; each later one arrives while those before are computed.
std::vector<int64_t> group_sizes(const Rank& rank) {
  // With fewer, the longest blocks of a causal launch decide its time.
  constexpr int64_t kLeastBlocksPerProcessor = 2, kBlockRows = 128;
  // On two H100s a head of so many tokens takes as long to compute as to move; the time of the one
  // grows with the square of the tokens, that of the other with the tokens.
  constexpr int64_t kTokensOfEqualTimes = 4096;

  const Problem& p = rank.whole();
  const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t blocks = p.batch * p.heads_per_kv_head() * divide_up(p.q_len, kBlockRows);
  const int64_t processors = rank.group().info(rank.number()).threads;
  const int64_t first = divide_up(kLeastBlocksPerProcessor * processors, blocks);
  const int64_t heads_while_one = std::max<int64_t>(1, p.q_len / kTokensOfEqualTimes);

  std::vector<int64_t> sizes;
  const int64_t all = rank.own_kv_heads().size();
  for (int64_t before = 0; before < all; before += sizes.back()) {
    sizes.push_back(std::min(std::max(first, before * heads_while_one), all - before));
  }
  return sizes;
}

class Ulysses final : public SplitAlgorithm {
 public:
  explicit Ulysses(const Ranks& ranks) {
    for (const auto& rank : ranks) {
      std::vector<Group>& groups = groups_.emplace_back();
      RowRange kv_heads = {0, rank->own_kv_heads().first};
      for (const int64_t size : group_sizes(*rank)) {
        kv_heads = {kv_heads.end, kv_heads.end + size};
        groups.push_back(make_group(*rank, kv_heads));
      }
    }
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    const std::vector<Group>& groups = groups_[static_cast<size_t>(rank.number())];
    const bool fetches_first = rank.group().info(rank.number()).kind == DeviceKind::cuda;
    const int steps = 2 * static_cast<int>(groups.size());
    const auto begin = [&](size_t group, int step, StepWork work) {
      rank.begin({2 * static_cast<int>(group) + step, steps, work, {groups[group].q_heads}});
    };
    begin(0, 1, StepWork::pull_heads);
    if (fetches_first) rank.fetch(rows_of_group(rank, groups.front(), in));
    std::vector<int64_t> pulls(groups.size());
    for (size_t i = fetches_first ? 1 : 0; i < groups.size(); ++i) {
      pulls[i] = pull_heads(rank, groups[i], in);
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      if (i > 0) begin(i, 1, StepWork::pull_heads);
      rank.wait(pulls[i]);
      begin(i, 2, StepWork::attend_heads);
      attend(rank, groups[i], out);
    }
  }

 private:
  struct Group {
    RowRange kv_heads, q_heads;
    RankTensor q = {}, k = {}, v = {}, o = {}, d_o = {}, logsumexp = {};  // of all tokens
  };

  static Group make_group(Rank& rank, RowRange kv_heads) {
    const Problem p = rank.block_of_heads(kv_heads);
    Group group{.kv_heads = kv_heads, .q_heads = rank.q_heads_of(kv_heads)};
    group.q = rank.pulled_tensor(p.dtype, p.q_heads, p.q_len, p.head_dim);
    group.k = rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.head_dim);
    group.v = rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.value_dim());
    group.logsumexp = rank.tensor(Dtype::fp32, p.q_heads, p.q_len, 1);
    if (p.pass == Pass::backward) {
      group.o = rank.pulled_tensor(p.dtype, p.q_heads, p.q_len, p.value_dim());
      group.d_o = rank.pulled_tensor(p.dtype, p.q_heads, p.q_len, p.value_dim());
    }
    rank.reserve(p);
    return group;
  }

  // From each rank its tokens. The next rank is the first, so that not all begin with the same, and
  // the rank itself the last.
  static std::vector<Rank::RowsFrom> rows_of_group(const Rank& rank, const Group& group,
                                                   const Inputs& in) {
    std::vector<Rank::RowsFrom> sources;
    for (int i = 1; i <= rank.group().ranks(); ++i) {
      const int owner = (rank.number() + i) % rank.group().ranks();
      sources.push_back(rows_from(rank, owner, group, in));
    }
    return sources;
  }

  static int64_t pull_heads(Rank& rank, const Group& group, const Inputs& in) {
    std::vector<Rank::RowsFrom> others = rows_of_group(rank, group, in);
    const Rank::RowsFrom own = std::move(others.back());
    others.pop_back();
    rank.pull_from(others);
    return rank.pull_from({own});
  }

  static Rank::RowsFrom rows_from(const Rank& rank, int owner, const Group& group,
                                  const Inputs& in) {
    Rank::RowsFrom source{owner, {}};
    for (const RowRange rows : as_one(rank.rows_of_rank(owner))) {
      const auto take = [&](const ConstTensorView& from, RowRange heads, const RankTensor& to) {
        source.rows.emplace_back(rows_of(heads_of(from, heads), rows), rows_of(to.view(), rows));
      };
      take(in.q, group.q_heads, group.q);
      take(in.k, group.kv_heads, group.k);
      take(in.v, group.kv_heads, group.v);
      if (rank.whole().pass == Pass::forward) continue;
      take(in.o, group.q_heads, group.o);
      take(in.d_o, group.q_heads, group.d_o);
      take(logsumexp_view(static_cast<const void*>(in.logsumexp), rank.whole()), group.q_heads,
           group.logsumexp);
    }
    return source;
  }

  // Two ranges as one, if the second follows the first.
  static std::vector<RowRange> as_one(const std::array<RowRange, 2>& rows) {
    if (rows[0].end == rows[1].first) return {{rows[0].first, rows[1].end}};
    return {rows[0], rows[1]};
  }

  static void attend(const Rank& rank, const Group& group, const Outputs& out) {
    const Problem p = rank.block_of_heads(group.kv_heads);
    const auto lse = static_cast<float*>(group.logsumexp.view().data);
    Inputs in{.q = group.q.view(), .k = group.k.view(), .v = group.v.view()};
    if (p.pass == Pass::backward) {
      in.o = group.o.view();
      in.d_o = group.d_o.view();
      in.logsumexp = lse;
      return rank.compute(p, in,
                          {.dq = heads_of(out.dq, group.q_heads),
                           .dk = heads_of(out.dk, group.kv_heads),
                           .dv = heads_of(out.dv, group.kv_heads)});
    }
    rank.compute(p, in, {.o = heads_of(out.o, group.q_heads), .logsumexp = lse});
    rank.store(
        group.logsumexp.view(),
        heads_of(logsumexp_view(static_cast<void*>(out.logsumexp), rank.whole()), group.q_heads));
  }

  std::vector<std::vector<Group>> groups_;  // by rank
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_ulysses(const Ranks& ranks) {
  const Rank& any = *ranks.front();
  const bool one_launch = any.group().info(0).kind == DeviceKind::cuda &&
                          any.whole().pass == Pass::forward && any.knows_shares() &&
                          any.own_in_place();
  return one_launch ? make_ulysses_share(ranks) : std::make_unique<Ulysses>(ranks);
}

}  // namespace flashbench
