// Attention and its gradients in fp64, block by block, with a bound on the error that a correct
// implementation's rounding explains. The formulas: docs/measuring.md.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "verify/matrix.h"
#include "verify/row_blocks.h"

namespace flashbench::verify {

// The forward pass of a block of query rows.
struct ForwardRows {
  Matrix<double> p;               // [rows, keys that any of them sees], 0 where masked
  Matrix<double> o;               // [rows, head_dim]
  std::vector<double> logsumexp;  // [rows]
};
ForwardRows forward_rows(const Problem&, const Inputs&, const RowBlock& queries);

// Error bounds of that block's O [rows, head_dim] and logsumexp [rows, 1], for providers that keep
// S (below: and dP) in the dtype `scores`.
void forward_bounds(const Problem&, const Inputs&, Dtype scores, const RowBlock& queries,
                    const ForwardRows&, MatrixRef<float> o_bound, MatrixRef<float> logsumexp_bound);

// What the backward pass needs to know of each query row.
struct RowStatistics {
  double logsumexp = 0;
  double d = 0;           // dO . O
  double d_variance = 0;  // of the D that comes of an O rounded to the dtype
};
RowStatistics row_statistics(const Problem&, const double* o, const double* d_o, double logsumexp);

// Exact values and error bounds of dQ at a block of query rows, and of dK and dV at a block of key
// rows. `statistics` is of all query rows, [batch, q_heads, q_len].
void query_gradients(const Problem&, const Inputs&, Dtype scores, const RowBlock& queries,
                     const std::vector<RowStatistics>& statistics, MatrixRef<double> dq,
                     MatrixRef<float> dq_bound);
void key_gradients(const Problem&, const Inputs&, Dtype scores, const RowBlock& keys,
                   const std::vector<RowStatistics>& statistics, MatrixRef<double> dk,
                   MatrixRef<float> dk_bound, MatrixRef<double> dv, MatrixRef<float> dv_bound);

}  // namespace flashbench::verify
