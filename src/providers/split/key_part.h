// A rank's part of the keys, and all queries against them.
#pragma once

#include "attention/key_split.h"
#include "providers/split/rank.h"

namespace flashbench {

// The rank in whose memory queries and outputs are: on GPUs the device's first.
inline constexpr int kOwnerOfQueries = 0;

class KeyPart {
 public:
  explicit KeyPart(Rank&);

  const KeySplit& split() const { return split_; }

  // O and logsumexp of all queries in the memory of the rank: [batch, q_heads, q_len, value_dim or
  // 1].
  struct Results {
    RankTensor o, logsumexp;
    PartialRows rows() const { return {o.view(), logsumexp.view()}; }
    PartialRows heads(RowRange) const;
  };
  static Results results(const Rank&);

  // Computes them over the rank's keys. The kernel reads the queries where they are, which all
  // ranks can. Where no query sees any key, the logsumexp is -infinity, and O is what it was.
  void compute(Rank&, const Inputs&, const PartialRows&) const;

 private:
  KeySplit split_;
};

}  // namespace flashbench
