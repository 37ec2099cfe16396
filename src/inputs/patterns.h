// The adversarial inputs: the value of each element, and which keys matter to which row. The checks
// of verify/expectation.h use the same functions.
#pragma once

#include <cstdint>
#include <optional>

#include "attention/problem.h"
#include "attention/tensors.h"

namespace flashbench {

// Whether fill_pattern_row fills this distribution.
bool is_pattern(Distribution);

// Fills one row of tensor number `tensor` (0 Q, 1 K, 2 V, 3 dO) of a problem whose inputs are a
// pattern. Noise comes from random_value; `first_index` is an index of random_value.
//
//   equal_scores   Q and K small integers, every row of K the same: all scores are equal. V are
//                  integers in [-8, 8].
//   one_hot        Q spells the number of one visible key in bits, K its own: that key's score is
//                  at least 128 above any other. V spells its own batch, head and row
//                  (one_hot_value).
//   late_maximum   N(0, 1), and scores that rise by 0.05 from key to key on average.
//   low_logsumexp  scores of -120 plus or minus 1; V and dO N(0, 1).
//   huge_scores    raw scores q . k of -524288 (odd heads: +524288), and 256 t off it for key
//                  t mod 5; V and dO N(0, 1).
//   nan_key        N(0, 1), but one row of K, of the last batch and K/V head, is NaN.
//   inf_key        the same, but column 0 of that row is +infinity and the rest is unchanged.
//   nan_unseen     N(0, 1), but rows of K that no query sees are NaN. With a window, so are
//                  those rows of V.
//   nan_v_padding  N(0, 1). What is in no request's rows, in padding and in pages, is NaN in V as
//                  elsewhere, but 0 in K (inputs/inputs.cpp).
//   subnormals     of e4m3: integers in [-3, 3], V in [-7, 7], as bytes below the normal numbers.
//
// Of tensors of e4m3 these are the values that the bytes mean, rounded to bytes with factors that
// are powers of two (pattern_descale): small integers, one_hot and huge_scores are exact. one_hot's
// V is numbers of the format, and huge_scores is 4096 t off for key t mod 5.
void fill_pattern_row(const Problem&, Distribution, uint64_t seed, int tensor, int64_t batch,
                      int64_t head, int64_t row, uint64_t first_index, const TensorView& to);

// The one key that query row `row` of a one_hot problem attends to; empty for a row that sees none.
std::optional<int64_t> one_hot_key(const Problem&, uint64_t seed, int64_t batch, int64_t head,
                                   int64_t row);

// Whether one_hot reaches its margin. It does not if there are more bits than columns in a head, or
// if the scale is too small.
bool one_hot_is_exact(const Problem&);

// The factor of the bytes of such a tensor, among which the largest magnitude is `amax`.
float pattern_descale(Distribution, float amax);

// An element of V of a one_hot problem of this dtype: an integer in [-256, 255], exact in every
// dtype but e4m3; in that any finite number, its largest in column 7, so that its factor is 1.
float one_hot_value(Dtype, int64_t batch, int64_t head, int64_t row, int64_t column);

// The batch, K/V head and row that a row of V belongs to, from its first columns, which the view
// may hold in another dtype. Numbers beyond 2^18 (e4m3: 253^2), and of rows 2^27 (253^3), wrap.
struct OneHotSource {
  int64_t batch, head, row;
};
std::optional<OneHotSource> one_hot_source(Dtype, const ConstTensorView&, int64_t batch,
                                           int64_t head, int64_t row);

// The row of K that nan_key and inf_key spoil: in the middle of the keys that the last query sees,
// in the last batch and K/V head. Takes the last Problem::request.
int64_t spoilt_key(const Problem& request);

}  // namespace flashbench
