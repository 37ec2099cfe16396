// Dense row-major matrices, and the BLAS calls that the oracle needs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/host_memory.h"
#include "attention/tensors.h"
#include "device/blas.h"
#include "verify/row_blocks.h"

namespace flashbench::verify {

// A rows x cols window into a row-major matrix; rows are `stride` elements apart.
template <typename T>
struct MatrixRef {
  T* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;

  T* row(int64_t i) const { return data + i * stride; }
  MatrixRef columns(int64_t first, int64_t count) const {
    return {data + first, rows, count, stride};
  }
  operator MatrixRef<const T>() const { return {data, rows, cols, stride}; }
};

// An owned matrix; its elements start uninitialised.
template <typename T>
class Matrix {
 public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t cols)
      : data_(make_host_array<T>(static_cast<size_t>(rows * cols))), rows_(rows), cols_(cols) {}

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  T* row(int64_t i) const { return data_.get() + i * cols_; }
  MatrixRef<T> ref() const { return {data_.get(), rows_, cols_, cols_}; }
  MatrixRef<const T> view() const { return ref(); }

 private:
  HostArray<T> data_;
  int64_t rows_ = 0, cols_ = 0;
};

template <typename T>
Matrix<T> zeros(int64_t rows, int64_t cols);

void copy(MatrixRef<const double> from, MatrixRef<double> to);

// Rows of one head of a tensor, widened to T.
template <typename T>
struct Rows {
  Matrix<T> values;    // [rows, head_dim]
  bool finite = true;  // no Inf or NaN among them
};
template <typename T>
Rows<T> gather(const ConstTensorView& tensor, const RowBlock& block);

// Every element squared.
Rows<double> squares(const Rows<double>& rows);

// Every element's absolute value.
Rows<double> magnitudes(const Rows<double>& rows);

// The Euclidean norm of every row.
std::vector<double> norms(const Rows<double>& rows);

using blas::Transpose;

// c = alpha * op(a) * op(b) + beta * c, on the calling thread.
void gemm(Transpose op_a, Transpose op_b, double alpha, MatrixRef<const double> a,
          MatrixRef<const double> b, double beta, MatrixRef<double> c);
void gemm(Transpose op_a, Transpose op_b, float alpha, MatrixRef<const float> a,
          MatrixRef<const float> b, float beta, MatrixRef<float> c);

// sum += op(weights) * rows, for weights [queries, keys] that are zero where visible(query, key) is
// false. Rows that are not visible do not count even if they hold Inf or NaN. A GEMM would let
// those through, because 0 * Inf is NaN; such rows take plain loops.
template <typename Visible>
void accumulate(Transpose op, MatrixRef<const double> weights, const Rows<double>& rows,
                MatrixRef<double> sum, const Visible& visible) {
  if (rows.finite) {
    gemm(op, Transpose::no, 1.0, weights, rows.values.view(), 1.0, sum);
    return;
  }
  for (int64_t query = 0; query < weights.rows; ++query) {
    for (int64_t key = 0; key < weights.cols; ++key) {
      if (!visible(query, key)) continue;
      const double weight = weights.row(query)[key];
      const double* from = rows.values.row(op == Transpose::no ? key : query);
      double* to = sum.row(op == Transpose::no ? query : key);
      for (int64_t column = 0; column < sum.cols; ++column) to[column] += weight * from[column];
    }
  }
}

}  // namespace flashbench::verify
