// The vectorised steps of standard attention between its matrix products. Threads of the naive
// provider call them, each on rows of its own. All matrices are fp32.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "attention/tensors.h"

namespace flashbench::kernels {

// Turns the scores of queries [first, first + rows) of one head into their softmax under the
// problem's mask and window, in place and in one pass over memory. `scores` is [rows, kv_len] in
// base 2 (scores times log2(e)). Writes the natural logsumexp of each row. A row that sees no key
// becomes 0, and its logsumexp -infinity.
void naive_softmax(const Problem&, int64_t first, int64_t rows, float* scores, float* logsumexp);

// dS = P * (dP - D) for queries [first, first + rows) of one head, 0 where masked. `dp` [rows,
// kv_len] becomes dS; `delta` [rows] is D.
void naive_softmax_gradient(const Problem&, int64_t first, int64_t rows, const float* p, float* dp,
                            const float* delta);

// delta[i] = sum over the columns of O * dO for rows [first, first + rows) of one head.
void naive_row_dots(const ConstTensorView& o, const ConstTensorView& d_o, int64_t b, int64_t h,
                    int64_t first, int64_t rows, float* delta);

// Converts rows [first, first + rows) of one head to dense fp32 rows, times the factor of the head
// if it has one, and back.
void naive_to_fp32(const ConstTensorView& from, int64_t b, int64_t h, int64_t first, int64_t rows,
                   float* to);
void naive_from_fp32(const float* from, const TensorView& to, int64_t b, int64_t h, int64_t first,
                     int64_t rows);

}  // namespace flashbench::kernels
