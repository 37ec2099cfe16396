#include "providers/split/key_part.h"

#include <limits>

namespace flashbench {

KeyPart::KeyPart(Rank& rank) : split_(KeySplit::of(rank.whole())) {
  rank.reserve(split_.part(rank.number()));
}

PartialRows KeyPart::Results::heads(RowRange range) const {
  return {heads_of(o.view(), range), heads_of(logsumexp.view(), range)};
}

KeyPart::Results KeyPart::results(const Rank& rank) {
  const Problem& p = rank.whole();
  return {rank.tensor(Dtype::fp32, p.q_heads, p.q_len, p.value_dim()),
          rank.tensor(Dtype::fp32, p.q_heads, p.q_len, 1)};
}

void KeyPart::compute(Rank& rank, const Inputs& in, const PartialRows& out) const {
  const Problem part = split_.part(rank.number());
  if (part.kv_len == 0) {
    return rank.fill(out.logsumexp, -std::numeric_limits<float>::infinity());
  }
  const RowRange keys = split_.keys(rank.number());
  rank.count_read(kOwnerOfQueries, in.q);
  rank.compute(part, {.q = in.q, .k = rows_of(in.k, keys), .v = rows_of(in.v, keys)},
               {.o = out.o, .logsumexp = static_cast<float*>(out.logsumexp.data)});
}

}  // namespace flashbench
