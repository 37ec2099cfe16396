// Which keys each of several devices has that share few queries over many keys, as decoding does.
#pragma once

#include "attention/problem.h"

namespace flashbench {

// Device r of P has the r-th part of the keys, all parts about as long, and the query heads
// [r H / P, (r + 1) H / P). Under a causal mask one device has all keys of the diagonal, so that
// each other part is seen by all queries or by none.
struct KeySplit {
  static KeySplit of(const Problem&);  // whose gpus are set

  RowRange keys(int rank) const;
  RowRange heads(int rank) const;

  // All queries with the keys of a rank, on one device. Its kv_len is 0 if none sees any.
  Problem part(int rank) const;

  Problem whole;
  int ranks = 1;

 private:
  int64_t first_key(int rank) const;
};

}  // namespace flashbench
