// What standard attention does on a GPU between its matrix products. Each function launches one
// kernel for all heads. Score matrices lie one behind the other for each of batch * q_heads heads;
// their rows are aligned to 16 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/problem.h"
#include "attention/tensors.h"

namespace flashbench::kernels {

// Elements to which rows of score matrices are padded, so that all of them are aligned to 16 bytes.
inline constexpr int64_t kScoreRowStep = 8;

// fp16 ends at 65,504, and scores need not: in these units they may be 64 times as large, and the
// smallest ones lose 2^-19 at most.
inline constexpr float kHalfScoreUnit = 64;

// Rows of scores that the kernels can count.
inline constexpr int64_t kMostScoreRows = INT32_MAX;

// Queries [first, first + rows) of every head and keys [0, keys) of their scores.
struct ScoreBlock {
  int64_t heads = 0;                        // batch * q_heads
  int64_t head_stride = 0, row_stride = 0;  // of score matrices, in elements
  int64_t q_len = 0;
  int64_t first = 0, rows = 0, keys = 0;
  int64_t visible_from = 0;  // query i sees clamp(i + visible_from, 0, keys) keys

  float unit = 1;  // a score in memory is so much smaller than the real one

  // Of the whole problem; rows of kv_len padded to kScoreRowStep.
  static ScoreBlock whole(const Problem&, Dtype scores);
};

// Scores (the softmax scale is in them, divided by the block's unit) become probabilities, exact
// zeros where masked, in one pass over memory up to 32,768 keys and in two beyond. In place where
// `scores` is `probabilities`. Writes the logsumexp of each row [heads, q_len]; a row that sees no
// key, or only scores of -infinity, becomes 0 and its logsumexp -infinity.
void naive_softmax(const ScoreBlock&, const void* scores, Dtype scores_dtype, void* probabilities,
                   Dtype probabilities_dtype, float* logsumexp, cudaStream_t);

// dS = P * (dP - D), exact zeros where masked; `delta` [heads, q_len] is D. In place where `dp` is
// `ds`.
void naive_softmax_gradient(const ScoreBlock&, const void* probabilities, const void* dp,
                            Dtype dp_dtype, void* ds, Dtype dtype, const float* delta,
                            cudaStream_t);

// delta [batch, heads, length] = sum over the columns of O * dO.
void naive_row_dots(const ConstTensorView& o, const ConstTensorView& d_o, float* delta,
                    cudaStream_t);

// A product C = alpha * scores B adds 0 * B for the keys that a row does not see, which is NaN
// where B holds NaN or infinity. Rows of C that are not finite are computed again, from visible
// keys only. The block is of all rows and keys; `b` is like K, `c` like Q.
void naive_redo_rows(const ScoreBlock&, double alpha, const void* scores, Dtype scores_dtype,
                     const ConstTensorView& b, const TensorView& c, cudaStream_t);

// Rows [first, length) of every head become 0.
void naive_zero_rows(const TensorView&, int64_t first, int64_t rows, cudaStream_t);

// Dense fp32 [batch, heads, length, head_dim] rounded to `to`.
void naive_from_fp32(const float* from, const TensorView& to, cudaStream_t);

}  // namespace flashbench::kernels
