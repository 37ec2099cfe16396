// Attention and its gradients in fp64, block by block, each of one request, with a bound on the
// error that a correct implementation can have through rounding. Formulas: docs/verifying.md.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "verify/matrix.h"
#include "verify/row_blocks.h"
#include "verify/storage.h"

namespace flashbench::verify {

// The forward pass of a block of query rows.
struct ForwardRows {
  Matrix<double> p;               // [rows, keys that any of the rows sees], 0 where masked
  Matrix<double> o;               // [rows, value_dim]
  std::vector<double> logsumexp;  // [rows]
};
ForwardRows forward_rows(const Problem&, const Inputs&, const RowBlock& queries);

// Error bounds of O [rows, value_dim] and logsumexp [rows, 1] of that block, for providers of
// that storage.
void forward_bounds(const Problem&, const Inputs&, const Storage&, const RowBlock& queries,
                    const ForwardRows&, MatrixRef<float> o_bound, MatrixRef<float> logsumexp_bound);

// The values that the backward pass needs of each query row.
struct RowStatistics {
  double logsumexp = 0;
  double d = 0;           // dO . O
  double d_variance = 0;  // of the error of D computed from an O rounded to the dtype
};
RowStatistics row_statistics(const Problem&, const double* o, const double* d_o, double logsumexp);

// Exact values and error bounds of dQ for a block of query rows, and of dK and dV for a block of
// key rows. `statistics` contains all query rows, at Problem::query_index.
void query_gradients(const Problem&, const Inputs&, const Storage&, const RowBlock& queries,
                     const std::vector<RowStatistics>& statistics, MatrixRef<double> dq,
                     MatrixRef<float> dq_bound);
void key_gradients(const Problem&, const Inputs&, const Storage&, const RowBlock& keys,
                   const std::vector<RowStatistics>& statistics, MatrixRef<double> dk,
                   MatrixRef<float> dk_bound, MatrixRef<double> dv, MatrixRef<float> dv_bound);

}  // namespace flashbench::verify
