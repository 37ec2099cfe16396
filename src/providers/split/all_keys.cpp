#include "providers/split/all_keys.h"

namespace flashbench {

AllKeys::AllKeys(Rank& rank) {
  const Problem& p = rank.whole();
  k_ = rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.head_dim);
  v_ = rank.pulled_tensor(p.dtype, p.kv_heads, p.kv_len, p.value_dim());
  for (size_t i = 0; i < 2; ++i) {
    const RowRange rows = rank.own_rows()[i];
    logsumexp_[i] = rank.tensor(Dtype::fp32, p.q_heads, rows.size(), 1);
    rank.reserve(rank.block(rows.size(), keys_of(rank, rows), rank.causal()));
  }
}

std::vector<int64_t> AllKeys::pull(Rank& rank, const Inputs& in) const {
  std::vector<int64_t> pulls;
  for (int chunk = 0; chunk < rank.tokens().chunks(); ++chunk) {
    const RowRange rows = rank.tokens().chunk(chunk);
    pulls.push_back(
        rank.pull(rank.tokens().owner(chunk), {{rows_of(in.k, rows), rows_of(k_.view(), rows)},
                                               {rows_of(in.v, rows), rows_of(v_.view(), rows)}}));
  }
  return pulls;
}

int64_t AllKeys::keys_of(const Rank& rank, RowRange queries) {
  return rank.causal() ? queries.end : rank.tokens().tokens;
}

void AllKeys::forward(const Rank& rank, size_t chunk, const Inputs& in, const Outputs& out,
                      const kernels::KeyGate* gate) const {
  const RowRange rows = rank.own_rows()[chunk];
  if (rows.empty()) return;
  const int64_t keys = keys_of(rank, rows);
  const TensorView lse = logsumexp_[chunk].view();
  rank.compute(rank.block(rows.size(), keys, rank.causal()),
               {.q = rows_of(in.q, rows), .k = k_.first_rows(keys), .v = v_.first_rows(keys)},
               {.o = rows_of(out.o, rows), .logsumexp = static_cast<float*>(lse.data)}, gate);
  rank.store(lse, rows_of(logsumexp_view(static_cast<void*>(out.logsumexp), rank.whole()), rows));
}

void AllKeys::backward(const Rank& rank, size_t chunk, const Inputs& in, const TensorView& dq,
                       const TensorView& dk, const TensorView& dv,
                       const kernels::KeyGate* gate) const {
  const RowRange rows = rank.own_rows()[chunk];
  if (rows.empty()) return;
  const int64_t keys = keys_of(rank, rows);
  const TensorView lse = logsumexp_[chunk].view();
  rank.store(rows_of(logsumexp_view(static_cast<const void*>(in.logsumexp), rank.whole()), rows),
             lse);
  rank.compute(
      rank.block(rows.size(), keys, rank.causal()),
      {rows_of(in.q, rows), k_.first_rows(keys), v_.first_rows(keys), rows_of(in.o, rows),
       rows_of(in.d_o, rows), static_cast<float*>(lse.data)},
      {.dq = rows_of(dq, rows), .dk = rows_of(dk, {0, keys}), .dv = rows_of(dv, {0, keys})}, gate);
}

}  // namespace flashbench
