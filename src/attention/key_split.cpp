#include "attention/key_split.h"

#include <algorithm>

namespace flashbench {

KeySplit KeySplit::of(const Problem& p) {
  return {p, static_cast<int>(p.gpus.value())};
}

int64_t KeySplit::first_key(int rank) const {
  if (rank == 0) return 0;
  if (rank == ranks) return whole.kv_len;
  const int64_t even = rank * whole.kv_len / ranks;
  const int64_t diagonal = std::min(whole.q_len, whole.kv_len);
  switch (whole.mask) {
    case Mask::none:
      return even;
    case Mask::causal_top_left:
      return std::max(even, diagonal);
    case Mask::causal_bottom_right:
      return std::min(even, whole.kv_len - diagonal);
  }
  return even;
}

RowRange KeySplit::keys(int rank) const {
  return {first_key(rank), first_key(rank + 1)};
}

RowRange KeySplit::heads(int rank) const {
  return {rank * whole.q_heads / ranks, (rank + 1) * whole.q_heads / ranks};
}

Problem KeySplit::part(int rank) const {
  Problem p = whole;
  p.gpus.reset();
  p.split = Split::zigzag;
  p.kv_len = keys(rank).size();
  if (p.mask == Mask::causal_top_left && rank != 0) p.kv_len = 0;
  if (p.mask == Mask::causal_bottom_right && rank != ranks - 1) p.mask = Mask::none;
  return p;
}

}  // namespace flashbench
