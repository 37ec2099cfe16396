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
//                  elsewhere, but 0 in K (device/inputs.cpp).
void fill_pattern_row(const Problem&, Distribution, uint64_t seed, int tensor, int64_t batch,
                      int64_t head, int64_t row, uint64_t first_index, const TensorView& to);

// The one key that query row `row` of a one_hot problem attends to; empty for a row that sees none.
std::optional<int64_t> one_hot_key(const Problem&, uint64_t seed, int64_t batch, int64_t head,
                                   int64_t row);

// Whether one_hot reaches its margin. It does not if there are more bits than columns in a head, or
// if the scale is too small.
bool one_hot_is_exact(const Problem&);

// An element of V of a one_hot problem: an integer in [-256, 255], exact in every dtype.
float one_hot_value(int64_t batch, int64_t head, int64_t row, int64_t column);

// The batch, K/V head and row that a row of V belongs to, from its first columns.
struct OneHotSource {
  int64_t batch, head, row;
};
std::optional<OneHotSource> one_hot_source(const ConstTensorView&, int64_t batch, int64_t head,
                                           int64_t row);

// The row of K that nan_key and inf_key spoil: in the middle of the keys that the last query sees,
// in the last batch and K/V head. Takes the last Problem::request.
int64_t spoilt_key(const Problem& request);

}  // namespace flashbench
