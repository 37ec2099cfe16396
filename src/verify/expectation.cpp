#include "verify/expectation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "attention/half.h"
#include "inputs/patterns.h"

namespace flashbench {

namespace {

std::string row_name(const char* tensor, int64_t b, int64_t h, int64_t row) {
  return fmt::format("{} at batch {}, head {}, row {}", tensor, b, h, row);
}

const void* row_address(const ConstTensorView& t, int64_t b, int64_t h, int64_t row) {
  return static_cast<const std::byte*>(t.data) + t.offset(b, h, row) * element_size(t.dtype);
}

// Returns the first sentence that check(batch, head, row) gives for a row of a head that is no
// padding. length(batch) is Problem::q_len_of or kv_len_of.
template <typename Check>
std::string first_of_rows(const Problem& p, int64_t heads,
                          int64_t (Problem::*length)(int64_t) const, const Check& check) {
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t rows = (p.*length)(b);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t row = 0; row < rows; ++row) {
        if (std::string wrong = check(b, h, row); !wrong.empty()) return wrong;
      }
    }
  }
  return "";
}

template <typename Check>
std::string first_of_queries(const Problem& p, const Check& check) {
  return first_of_rows(p, p.q_heads, &Problem::q_len_of, check);
}

// ---- O is a row of V

// An element, with its factor if it has one.
float value_at(const ConstTensorView& t, int64_t b, int64_t h, int64_t row, int64_t column) {
  const float value = load_element(t.data, t.dtype, t.offset(b, h, row) + column);
  return t.descales.data == nullptr ? value : value * t.descales.at(b, h, row);
}

// A value as O stores it.
float stored_in(const ConstTensorView& o, float value) {
  const float factor = o.descales.data == nullptr ? 1 : *o.descales.data;
  return factor * round_to(o.dtype, value / factor);
}

// Whether a row of O is that row of V bit for bit; of V in bytes, whose -0 a sum makes 0, value for
// value.
bool is_row_of_v(const ConstTensorView& o, const ConstTensorView& v, int64_t batch, int64_t o_head,
                 int64_t o_row, int64_t v_head, int64_t v_row) {
  if (v.descales.data == nullptr) {
    return std::memcmp(row_address(o, batch, o_head, o_row), row_address(v, batch, v_head, v_row),
                       static_cast<size_t>(o.head_dim * element_size(o.dtype))) == 0;
  }
  for (int64_t c = 0; c < o.head_dim; ++c) {
    const float value = stored_in(o, value_at(v, batch, v_head, v_row, c));
    if (value_at(o, batch, o_head, o_row, c) != value) return false;
  }
  return true;
}

std::string check_one_hot(const Problem& p, uint64_t seed, const ConstTensorView& v,
                          const ConstTensorView& o) {
  if (!one_hot_is_exact(p)) return "";
  return first_of_queries(p, [&](int64_t b, int64_t h, int64_t row) -> std::string {
    const auto key = one_hot_key(p, seed, b, h, row);
    const int64_t kv_head = h / p.heads_per_kv_head();
    if (!key || is_row_of_v(o, v, b, h, row, kv_head, *key)) return "";
    const auto found = one_hot_source(p.key_dtype(), o, b, h, row);
    return fmt::format("{} must be V of head {}, row {}, bit for bit, but is {}",
                       row_name("o", b, h, row), kv_head, *key,
                       found ? fmt::format("V of batch {}, head {}, row {}, or next to it",
                                           found->batch, found->head, found->row)
                             : "no row of V");
  });
}

std::string check_single_keys(const Problem& p, const ConstTensorView& v,
                              const ConstTensorView& o) {
  return first_of_queries(p, [&](int64_t b, int64_t h, int64_t row) -> std::string {
    const int64_t kv_head = h / p.heads_per_kv_head();
    const RowRange keys = p.request(b).visible_keys(row);
    if (keys.size() != 1 || is_row_of_v(o, v, b, h, row, kv_head, keys.first)) return "";
    return fmt::format("{} sees one key only and must be its row of V, bit for bit",
                       row_name("o", b, h, row));
  });
}

// ---- O is the mean of V

std::string check_mean(const Problem& p, const ConstTensorView& v, const ConstTensorView& o) {
  std::vector<float> sum;  // of integers, so that rows can be taken out again
  RowRange summed;         // rows of V; both its ends rise from one query of a head to the next
  return first_of_queries(p, [&](int64_t b, int64_t h, int64_t row) -> std::string {
    if (row == 0) {
      sum.assign(static_cast<size_t>(v.head_dim), 0);
      summed = {};
    }
    const auto add = [&](int64_t key, float factor) {
      const int64_t kv_head = h / p.heads_per_kv_head();
      for (int64_t c = 0; c < v.head_dim; ++c) {
        sum[static_cast<size_t>(c)] += factor * value_at(v, b, kv_head, key, c);
      }
    };
    const RowRange visible = p.request(b).visible_keys(row);
    for (; summed.end < visible.end; ++summed.end) add(summed.end, 1);
    for (; summed.first < visible.first; ++summed.first) add(summed.first, -1);
    if (!std::has_single_bit(static_cast<uint64_t>(visible.size()))) return "";
    for (int64_t c = 0; c < v.head_dim; ++c) {
      const float exact = sum[static_cast<size_t>(c)] / static_cast<float>(visible.size());
      const float mean = stored_in(o, exact), found = value_at(o, b, h, row, c);
      // In the middle between two values that O can store, neither is nearer.
      if (found == mean || std::abs(found - exact) == std::abs(mean - exact)) continue;
      return fmt::format(
          "{}, column {} must be {:.9g} exactly, the mean of {} rows of V, but is "
          "{:.9g}",
          row_name("o", b, h, row), c, mean, visible.size(), found);
    }
    return "";
  });
}

// ---- NaN and infinity reach the outputs that they must

// How a spoilt key affects a query row.
enum class Reached {
  no,      // everything is finite
  masked,  // the spoilt key's score is -infinity: its weight is 0, but 0 * infinity is NaN in dQ
  yes,     // a score is NaN or +infinity: the whole row is NaN
};

class Spread {
 public:
  Spread(const Problem& p, Distribution distribution, const ConstTensorView& q)
      : p_(p), distribution_(distribution), q_(q), key_(spoilt_key(p.request(p.batch - 1))) {}

  Reached reached(int64_t b, int64_t h, int64_t row) const {
    if (!is_spoilt(b, h / p_.heads_per_kv_head()) ||
        !p_.request(b).visible_keys(row).contains(key_)) {
      return Reached::no;
    }
    if (distribution_ == Distribution::nan_key) return Reached::yes;
    const double score = p_.softmax_scale() *
                         static_cast<double>(load_element(q_.data, q_.dtype, q_.offset(b, h, row)));
    return score < 0 ? Reached::masked : Reached::yes;
  }

  // Whether the row's logsumexp is -infinity: no key has any weight.
  bool empty(int64_t b, int64_t h, int64_t row) const {
    const int64_t weightless = reached(b, h, row) == Reached::masked ? 1 : 0;
    return p_.request(b).visible_keys(row).size() == weightless;
  }

  // Which rows of dK and dV a NaN query adds to.
  std::vector<bool> nan_keys(int64_t b, int64_t kv_head) const {
    const Problem request = p_.request(b);
    std::vector<bool> keys(static_cast<size_t>(request.kv_len), false);
    if (!is_spoilt(b, kv_head)) return keys;
    for (int64_t i = 0; i < p_.heads_per_kv_head(); ++i) {
      const int64_t h = kv_head * p_.heads_per_kv_head() + i;
      for (int64_t row = 0; row < request.q_len; ++row) {
        if (reached(b, h, row) != Reached::yes) continue;
        const RowRange seen = request.visible_keys(row);
        std::fill(keys.begin() + seen.first, keys.begin() + seen.end, true);
      }
    }
    return keys;
  }

 private:
  bool is_spoilt(int64_t b, int64_t kv_head) const {
    return distribution_ != Distribution::nan_unseen && b == p_.batch - 1 &&
           kv_head == p_.kv_heads - 1;
  }

  const Problem& p_;
  Distribution distribution_;
  ConstTensorView q_;
  int64_t key_;
};

std::string must_be(const char* what, const char* tensor, int64_t b, int64_t h, int64_t row,
                    int64_t column, float found) {
  return fmt::format("{}, column {} must be {}, but is {:.9g}", row_name(tensor, b, h, row), column,
                     what, found);
}

// is_nan(batch, head, row, column) says which elements must be NaN; the others must be finite.
template <typename IsNan>
std::string check_nan(const char* name, const Problem& p, int64_t (Problem::*length)(int64_t) const,
                      const ConstTensorView& t, const IsNan& is_nan) {
  return first_of_rows(p, t.heads, length, [&](int64_t b, int64_t h, int64_t row) -> std::string {
    for (int64_t c = 0; c < t.head_dim; ++c) {
      const float found = load_element(t.data, t.dtype, t.offset(b, h, row) + c);
      const bool nan = is_nan(b, h, row, c);
      if (nan ? !std::isnan(found) : !std::isfinite(found)) {
        return must_be(nan ? "NaN" : "finite", name, b, h, row, c, found);
      }
    }
    return "";
  });
}

std::string check_spread_forward(const Problem& p, const Spread& spread, const Outputs& out) {
  const auto o_is_nan = [&](int64_t b, int64_t h, int64_t row, int64_t) {
    return spread.reached(b, h, row) == Reached::yes;
  };
  std::string wrong = check_nan("o", p, &Problem::q_len_of, out.o, o_is_nan);
  if (!wrong.empty() || out.logsumexp == nullptr) return wrong;
  return first_of_queries(p, [&](int64_t b, int64_t h, int64_t row) -> std::string {
    const float found = out.logsumexp[p.query_index(b, h, row)];
    const bool nan = spread.reached(b, h, row) == Reached::yes, empty = spread.empty(b, h, row);
    const bool right = nan     ? std::isnan(found)
                       : empty ? std::isinf(found) && found < 0
                               : std::isfinite(found);
    if (right) return "";
    return must_be(nan ? "NaN" : empty ? "-infinity" : "finite", "logsumexp", b, h, row, 0, found);
  });
}

std::string check_spread_backward(const Problem& p, const Spread& spread, const Outputs& out) {
  const auto dq_is_nan = [&](int64_t b, int64_t h, int64_t row, int64_t c) {
    const Reached reached = spread.reached(b, h, row);
    return reached == Reached::yes || (reached == Reached::masked && c == 0);
  };
  std::string wrong = check_nan("dq", p, &Problem::q_len_of, out.dq, dq_is_nan);
  if (!wrong.empty()) return wrong;
  std::vector<std::vector<bool>> nan_keys;  // [batch, kv_heads][kv_len]
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.kv_heads; ++h) nan_keys.push_back(spread.nan_keys(b, h));
  }
  const auto is_nan = [&](int64_t b, int64_t h, int64_t row, int64_t) {
    return nan_keys[static_cast<size_t>(b * p.kv_heads + h)][static_cast<size_t>(row)];
  };
  wrong = check_nan("dk", p, &Problem::kv_len_of, out.dk, is_nan);
  return wrong.empty() ? check_nan("dv", p, &Problem::kv_len_of, out.dv, is_nan) : wrong;
}

}  // namespace

std::string broken_expectation(const Problem& p, const InputSpec& spec, const Storage& storage,
                               const Inputs& in, const Outputs& out) {
  const bool forward = p.pass == Pass::forward;
  switch (spec.distribution) {
    case Distribution::equal_scores:
      return forward && storage.partials == Dtype::fp32 ? check_mean(p, in.v, out.o) : "";
    case Distribution::one_hot:
      return forward ? check_one_hot(p, spec.seed, in.v, out.o) : "";
    case Distribution::huge_scores:
      return forward ? check_single_keys(p, in.v, out.o) : "";
    case Distribution::nan_key:
    case Distribution::inf_key:
    case Distribution::nan_unseen: {
      const Spread spread(p, spec.distribution, in.q);
      return forward ? check_spread_forward(p, spread, out) : check_spread_backward(p, spread, out);
    }
    default:
      return "";
  }
}

}  // namespace flashbench
