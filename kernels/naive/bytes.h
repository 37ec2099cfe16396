// The steps of standard attention on bytes (dtype e4m3) on a GPU beside its two products. Libraries
// multiply A B^T of bytes, in sizes that are multiples of 16: so Q, K and V, transposed, are first
// copied to matrices that are padded with zeros. The query heads that share a K/V head are a group,
// whose rows are one matrix. Each function launches one kernel for all groups.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/tensors.h"
#include "kernels/common/mask.h"

namespace flashbench::kernels {

// P of a row is exp(S - maximum) times this, rounded to e4m3.
inline constexpr int kBytesPExponent = 8;

// Queries [first, first + rows) of every head for keys [0, keys). Row i of head h of a group is row
// h * rows + i of the group's matrices: Q [group_rows, ...], scores and P [group_rows, keys], and
// products of P and V [group_rows, ...].
struct BytesBlock {
  int64_t q_heads = 0, kv_heads = 0, q_len = 0, kv_len = 0;
  int64_t groups = 0;  // batch * kv_heads
  int64_t first = 0, rows = 0;
  int64_t group_rows = 0;  // with padding
  int64_t keys = 0;        // with padding, a multiple of 16
  Band band{};             // which keys a query sees
};

// Copies these rows of Q to `to` [groups, group_rows, columns], with zeros behind those of a group
// and behind Q's columns.
void pack_queries(const BytesBlock&, const ConstTensorView& q, int64_t columns, void* to,
                  cudaStream_t);

// The same of all rows of K: to [groups, keys, columns].
void pack_keys(const ConstTensorView& k, int64_t keys, int64_t columns, void* to, cudaStream_t);

// Copies V to `to` [groups, columns, keys], with zeros behind V's columns and keys.
void transpose_values(const ConstTensorView& v, int64_t keys, int64_t columns, void* to,
                      cudaStream_t);

// Turns products of bytes of Q and K, in fp32 or bf16, into P: bytes, zeros where masked. A score
// is a product times `scale` and the factors of its Q and K, one a head at most. Writes the sum of
// exp(S - maximum) of each row, unrounded, to sums [groups, group_rows], 0 for one that sees no
// key; and its logsumexp [batch, q_heads, q_len]. Takes one pass over memory for up to 32,768 keys
// and two beyond.
void softmax_of_bytes(const BytesBlock&, float scale, const Descales& q, const Descales& k,
                      const void* products, Dtype products_dtype, void* p, float* sums,
                      float* logsumexp, cudaStream_t);

// O in bf16: the products of P and V [groups, group_rows, columns] over the rows' sums, times the
// factors of V, one a head at most. 0 * NaN of a key that a row does not see is NaN: a row that is
// not finite is computed again from P and the transposed V [groups, columns, v_keys].
void finish_rows_of_bytes(const BytesBlock&, const Descales& v, const float* products,
                          const float* sums, const void* p, const void* transposed_v,
                          int64_t columns, int64_t v_keys, const TensorView& o, cudaStream_t);

}  // namespace flashbench::kernels
