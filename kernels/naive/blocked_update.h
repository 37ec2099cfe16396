// What attention does between its products where K and V come in blocks: the online softmax
// (Milakov and Gimelshein 2018, arXiv 1805.02867), carried in memory.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "kernels/naive/softmax_cuda.h"

namespace flashbench::kernels {

// Keys of a block, which a warp holds in its registers.
inline constexpr int64_t kBlockedKeys = 1024;

// What is carried from block to block: for each row its maximum, as scores are in memory, and its
// sum of exp(score - maximum) over the blocks so far, [heads, q_len]; O before it is divided by
// that, dense [heads, q_len, head_dim].
struct BlockedState {
  float *maximum, *sum, *o;
  int64_t head_dim;
};

// Scores of a block of up to kBlockedKeys keys become exp(score - maximum), in place, exact zeros
// where masked; what is carried follows, O rescaled where the maximum rose. The first block of a
// row starts its state and leaves O alone.
void blocked_update(const ScoreBlock&, void* scores, Dtype, const BlockedState&, bool first_block,
                    cudaStream_t);

// O = O / sum and the logsumexp; `unit` is the ScoreBlocks'. Queries before `first_query` have seen
// no block: O = 0.
void blocked_finish(const BlockedState&, float unit, int64_t first_query, const TensorView& o,
                    float* logsumexp, cudaStream_t);

}  // namespace flashbench::kernels
