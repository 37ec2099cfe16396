// What a kernel asks of a mask beside Problem::visible_keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/problem.h"

namespace flashbench::kernels {

// The first query that sees key `key`, and with it all later ones do; may be q_len or more: none.
inline int64_t first_query_that_sees(const Problem& p, int64_t key) {
  switch (p.mask) {
    case Mask::none:
      return 0;
    case Mask::causal_top_left:
      return key;
    case Mask::causal_bottom_right:
      return std::max<int64_t>(0, key - (p.kv_len - p.q_len));
  }
  return 0;
}

}  // namespace flashbench::kernels
