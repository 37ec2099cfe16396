// The steps between the matrix products of blocked attention: the online softmax (Milakov and
// Gimelshein 2018, arXiv 1805.02867), with its state in memory.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "kernels/naive/softmax_cuda.h"

namespace flashbench::kernels {

// Keys per block; a warp holds a row of a block in registers.
inline constexpr int64_t kBlockedKeys = 1024;

// The state between blocks of keys. For each row [heads, q_len]: the maximum so far, in units of
// the scores in memory, and the sum of exp(score - maximum) so far. `o` is O before division by
// that sum, dense [heads, q_len, head_dim].
struct BlockedState {
  float *maximum, *sum, *o;
  int64_t head_dim;  // of O
};

// Turns the scores of a block of up to kBlockedKeys keys into exp(score - maximum) in place, exact
// zeros where masked, and updates the state; rescales O where the maximum rose. The first block of
// a row initialises the state of the row and leaves O alone.
void blocked_update(const ScoreBlock&, void* scores, Dtype, const BlockedState&, bool first_block,
                    cudaStream_t);

// Writes O = O / sum and the logsumexp. `unit` is the unit of the ScoreBlocks. Queries before
// `first_query` have seen no block; their O is 0.
void blocked_finish(const BlockedState&, float unit, int64_t first_query, const TensorView& o,
                    float* logsumexp, cudaStream_t);

}  // namespace flashbench::kernels
