// The exact values of one output tensor at the checked rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "verify/matrix.h"
#include "verify/row_blocks.h"

namespace flashbench::verify {

struct Reference {
  // Allocates the rows of `blocks`, which must outlive this.
  Reference(std::string tensor, Dtype dtype, int64_t columns, const std::vector<RowBlock>& blocks);

  // The rows of block number `block`.
  MatrixRef<double> values(size_t block);
  MatrixRef<const double> values(size_t block) const;
  MatrixRef<float> bounds(size_t block);
  MatrixRef<const float> bounds(size_t block) const;

  int64_t elements() const { return value.rows() * columns; }

  std::string tensor;  // "o", "logsumexp", "dq", "dk" or "dv"
  Dtype dtype;         // as providers store it
  int64_t columns;
  const std::vector<RowBlock>* blocks;
  std::vector<int64_t> first_row;  // first row of each block in `value` and `bound`
  Matrix<double> value;            // exact
  Matrix<float> bound;             // error that rounding explains, without that of the final store
  double naive_max_abs = 0;        // error of the naive computation in the dtype
};

}  // namespace flashbench::verify
