// The steps of standard attention on a GPU between its matrix products. Each function launches one
// kernel for all heads. The score matrices of the batch * q_heads heads lie one after the other;
// their rows are aligned to 16 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "kernels/common/mask.h"

namespace flashbench::kernels {

// The row lengths of score matrices are padded to a multiple of this, so that all rows are aligned
// to 16 bytes.
inline constexpr int64_t kScoreRowStep = 8;

// Scores can exceed 65,504, the largest fp16. Stored in this unit they may be 64 times as large;
// the smallest ones lose at most 2^-19.
inline constexpr float kHalfScoreUnit = 64;

// The largest number of score rows that the kernels can index.
inline constexpr int64_t kMostScoreRows = INT32_MAX;

// The scores of queries [first, first + rows) of every head for keys [0, keys).
struct ScoreBlock {
  int64_t heads = 0;                        // batch * q_heads
  int64_t head_stride = 0, row_stride = 0;  // of score matrices, in elements
  int64_t q_len = 0;
  int64_t statistic_stride = 0;  // from head to head of the logsumexp, or of D
  int64_t first = 0, rows = 0, keys = 0;
  Band band{};  // which of these keys a query sees

  float unit = 1;  // stored score = score / unit

  // The block of the whole problem, with rows of kv_len padded to kScoreRowStep and dense
  // statistics [heads, q_len].
  static ScoreBlock whole(const Problem&, Dtype scores);
};

// Turns scores into probabilities, exact zeros where masked. The scores include the softmax scale
// and are divided by the block's unit. Takes one pass over memory for up to 32,768 keys and two
// beyond. Works in place if `scores` is `probabilities`. Writes the logsumexp of each
// row. A row that sees no key, or only scores of -infinity, becomes 0 and its logsumexp
// -infinity.
void naive_softmax(const ScoreBlock&, const void* scores, Dtype scores_dtype, void* probabilities,
                   Dtype probabilities_dtype, float* logsumexp, cudaStream_t);

// dS = P * (dP - D), exact zeros where masked; `delta` is D. Works in place if `dp` is `ds`.
void naive_softmax_gradient(const ScoreBlock&, const void* probabilities, const void* dp,
                            Dtype dp_dtype, void* ds, Dtype dtype, const float* delta,
                            cudaStream_t);

// delta [batch, heads, length] = sum over the columns of O * dO.
void naive_row_dots(const ConstTensorView& o, const ConstTensorView& d_o, float* delta,
                    cudaStream_t);

// The product C = alpha * scores B adds 0 * B for keys that a row does not see, which is NaN where
// B holds NaN or infinity. This recomputes the rows of C that are not finite from their visible
// keys only. The block must contain all rows and keys; `b` has the shape of K, `c` that of Q.
void naive_redo_rows(const ScoreBlock&, double alpha, const void* scores, Dtype scores_dtype,
                     const ConstTensorView& b, const TensorView& c, cudaStream_t);

// Sets rows [first, first + rows) of every head to 0.
void naive_zero_rows(const TensorView&, int64_t first, int64_t rows, cudaStream_t);

// Rounds dense fp32 [batch, heads, length, head_dim] to the dtype of `to`.
void naive_from_fp32(const float* from, const TensorView& to, cudaStream_t);

}  // namespace flashbench::kernels
