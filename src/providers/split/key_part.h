// A rank's part of the keys, and all queries against them.
#pragma once

#include "attention/key_split.h"
#include "providers/split/rank.h"

namespace flashbench {

class KeyPart {
 public:
  explicit KeyPart(Rank&);

  const KeySplit& split() const { return split_; }

  // Pulls the queries of all heads. Returns what to wait for.
  int64_t pull_queries(Rank&, const Inputs&) const;

  // Computes O and logsumexp over the rank's keys. Where no query sees any, the logsumexp is
  // -infinity, and O is what it was.
  void compute(const Rank&, const Inputs&) const;

  // fp32, [batch, q_heads, q_len, value_dim or 1].
  const TensorView& o() const { return o_.view(); }
  const TensorView& logsumexp() const { return logsumexp_.view(); }

 private:
  KeySplit split_;
  RankTensor q_, o_, logsumexp_;
};

}  // namespace flashbench
