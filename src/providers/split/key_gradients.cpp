#include "providers/split/key_gradients.h"

namespace flashbench {

bool sees_keys(const Rank& rank, int other, int chunk) {
  for (const int own : rank.tokens().chunks_of(other)) {
    const bool sees = !rank.causal() || own >= chunk;
    if (sees && !rank.tokens().chunk(own).empty()) return true;
  }
  return false;
}

KeyGradients::KeyGradients(const Ranks& ranks) {
  for (const auto& rank : ranks) {
    const Problem& p = rank->whole();
    const int64_t chunk = rank->tokens().chunk_length();
    const auto dk = [&](int64_t rows) {
      return rank->tensor(Dtype::fp32, p.kv_heads, rows, p.head_dim);
    };
    const auto dv = [&](int64_t rows) {
      return rank->tensor(Dtype::fp32, p.kv_heads, rows, p.value_dim());
    };
    ranks_.push_back({dk(p.kv_len), dv(p.kv_len), dk(chunk), dv(chunk), dk(chunk), dv(chunk)});
  }
}

void KeyGradients::clear(const Rank& rank) {
  const OfRank& own = ranks_[static_cast<size_t>(rank.number())];
  rank.fill(own.dk.view(), 0);
  rank.fill(own.dv.view(), 0);
}

void KeyGradients::add(const Rank& rank, RowRange keys, const TensorView& dk,
                       const TensorView& dv) {
  const OfRank& own = ranks_[static_cast<size_t>(rank.number())];
  rank.add(rows_of(own.dk.view(), keys), dk);
  rank.add(rows_of(own.dv.view(), keys), dv);
}

void KeyGradients::bring_home(Rank& rank, const Outputs& out, RankStep step) {
  step.work = StepWork::sum_gradients;
  step.ranges = rank.own_rows();
  rank.barrier();
  rank.begin(step);
  const OfRank& own = ranks_[static_cast<size_t>(rank.number())];
  for (const int chunk : rank.tokens().chunks_of(rank.number())) {
    const RowRange rows = rank.tokens().chunk(chunk);
    if (rows.empty()) continue;
    const TensorView dk = own.total_dk.first_rows(rows.size());
    const TensorView dv = own.total_dv.first_rows(rows.size());
    const TensorView other_dk = own.other_dk.first_rows(rows.size());
    const TensorView other_dv = own.other_dv.first_rows(rows.size());
    rank.fill(dk, 0);
    rank.fill(dv, 0);
    for (int other = 0; other < rank.group().ranks(); ++other) {
      if (!sees_keys(rank, other, chunk)) continue;
      const OfRank& from = ranks_[static_cast<size_t>(other)];
      rank.wait(rank.pull(other, {{rows_of(from.dk.view(), rows), other_dk},
                                  {rows_of(from.dv.view(), rows), other_dv}}));
      rank.add(dk, other_dk);
      rank.add(dv, other_dv);
    }
    rank.store(dk, rows_of(out.dk, rows));
    rank.store(dv, rows_of(out.dv, rows));
  }
  rank.barrier();  // until all have read, none may begin the next run
}

}  // namespace flashbench
