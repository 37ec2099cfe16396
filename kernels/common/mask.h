// Properties of masks and windows that kernels need in addition to Problem::visible_keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "attention/problem.h"

namespace flashbench::kernels {

// Query i sees the keys from clamp(i + first_from, 0, kv_len) up to, but not including,
// clamp(i + end_from, 0, kv_len).
struct Band {
  int64_t first_from, end_from;
};
inline Band band(const Problem& p) {
  Band band{-p.q_len, p.kv_len};  // everything
  if (p.window_left) band.first_from = p.diagonal() - *p.window_left;
  if (p.window_right) band.end_from = p.diagonal() + *p.window_right + 1;
  if (p.mask != Mask::none) band.end_from = p.diagonal() + 1;
  return band;
}

// Upper limit of lengths: kernels use 32-bit row and key indices, and diagonal() must also fit.
inline constexpr int64_t kMaxLength = int64_t{1} << 30;

// Keys before or after a query's own that it sees. No window is one longer than any request.
inline int window_keys(const std::optional<int64_t>& window) {
  return static_cast<int>(std::min(window.value_or(kMaxLength), kMaxLength - 1));
}

// Without a window, query i sees keys 0 to i + diagonal(p), limited to kv_len. Without a mask this
// is kMaxLength, so that every query sees all keys.
inline int64_t diagonal(const Problem& p) {
  return p.mask == Mask::none ? kMaxLength : p.diagonal();
}

}  // namespace flashbench::kernels
