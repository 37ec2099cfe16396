// Properties of masks that kernels need in addition to Problem::visible_keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/problem.h"

namespace flashbench::kernels {

// Query i sees clamp(i + visible_from, 0, kv_len) keys.
inline int64_t visible_from(const Problem& p) {
  switch (p.mask) {
    case Mask::none:
      return p.kv_len;
    case Mask::causal_top_left:
      return 1;
    case Mask::causal_bottom_right:
      return p.kv_len - p.q_len + 1;
  }
  return 0;
}

// The first query that sees key `key`; all later queries see it too. A result of q_len or more
// means that no query sees it.
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

// Upper limit of lengths: kernels use 32-bit row and key indices, and diagonal() must also fit.
inline constexpr int64_t kMaxLength = int64_t{1} << 30;

// Query i sees keys 0 to i + diagonal(p), limited to kv_len. Without a mask this is kMaxLength, so
// that every query sees all keys.
inline int64_t diagonal(const Problem& p) {
  return p.mask == Mask::none ? kMaxLength : visible_from(p) - 1;
}

}  // namespace flashbench::kernels
