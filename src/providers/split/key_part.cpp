#include "providers/split/key_part.h"

#include <limits>

namespace flashbench {

KeyPart::KeyPart(Rank& rank) : split_(KeySplit::of(rank.whole())) {
  const Problem& p = rank.whole();
  q_ = rank.tensor(p.dtype, p.q_heads, p.q_len, p.head_dim);
  o_ = rank.tensor(Dtype::fp32, p.q_heads, p.q_len, p.value_dim());
  logsumexp_ = rank.tensor(Dtype::fp32, p.q_heads, p.q_len, 1);
  rank.reserve(split_.part(rank.number()));
}

int64_t KeyPart::pull_queries(Rank& rank, const Inputs& in) const {
  int64_t last = 0;
  for (int owner = 0; owner < rank.group().ranks(); ++owner) {
    const RowRange heads = split_.heads(owner);
    last = rank.pull(owner, {{heads_of(in.q, heads), heads_of(q_.view(), heads)}});
  }
  return last;
}

void KeyPart::compute(const Rank& rank, const Inputs& in) const {
  const Problem part = split_.part(rank.number());
  if (part.kv_len == 0) {
    return rank.fill(logsumexp(), -std::numeric_limits<float>::infinity());
  }
  const RowRange keys = split_.keys(rank.number());
  rank.compute(part, {.q = q_.view(), .k = rows_of(in.k, keys), .v = rows_of(in.v, keys)},
               {.o = o(), .logsumexp = static_cast<float*>(logsumexp().data)});
}

}  // namespace flashbench
