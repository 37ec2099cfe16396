#include "verify/matrix.h"

#include <algorithm>
#include <cmath>

#include "attention/half.h"

namespace flashbench::verify {

namespace {

template <typename T>
void multiply(Transpose op_a, Transpose op_b, T alpha, MatrixRef<const T> a, MatrixRef<const T> b,
              T beta, MatrixRef<T> c) {
  const int64_t inner = op_a == Transpose::no ? a.cols : a.rows;
  blas::gemm(op_a, op_b, c.rows, c.cols, inner, alpha, {a.data, a.stride}, {b.data, b.stride}, beta,
             {c.data, c.stride});
}

}  // namespace

template <typename T>
Matrix<T> zeros(int64_t rows, int64_t cols) {
  Matrix<T> matrix(rows, cols);
  std::fill_n(matrix.row(0), rows * cols, T{0});
  return matrix;
}
template Matrix<float> zeros(int64_t, int64_t);
template Matrix<double> zeros(int64_t, int64_t);

void copy(MatrixRef<const double> from, MatrixRef<double> to) {
  for (int64_t i = 0; i < from.rows; ++i) std::copy_n(from.row(i), from.cols, to.row(i));
}

template <typename T>
Rows<T> gather(const ConstTensorView& tensor, const RowBlock& block) {
  // What an element is times, which has a factor.
  const auto factor_of = [](const ConstTensorView& t, const RowBlock& at, int64_t row) {
    return t.descales.data == nullptr ? T{1}
                                      : static_cast<T>(t.descales.at(at.batch, at.head, row));
  };
  const auto count = static_cast<int64_t>(block.rows.size());
  Rows<T> rows{Matrix<T>(count, tensor.head_dim)};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t offset =
        tensor.offset(block.batch, block.head, block.rows[static_cast<size_t>(i)]);
    T* row = rows.values.row(i);
    const T factor = factor_of(tensor, block, block.rows[static_cast<size_t>(i)]);
    for (int64_t column = 0; column < tensor.head_dim; ++column) {
      const T value =
          factor * static_cast<T>(load_element(tensor.data, tensor.dtype, offset + column));
      if (!std::isfinite(value)) rows.finite = false;
      row[column] = value;
    }
  }
  return rows;
}
template Rows<float> gather(const ConstTensorView&, const RowBlock&);
template Rows<double> gather(const ConstTensorView&, const RowBlock&);

namespace {

template <typename Function>
Rows<double> of_each(const Rows<double>& rows, Function function) {
  Rows<double> result{Matrix<double>(rows.values.rows(), rows.values.cols()), rows.finite};
  const int64_t elements = rows.values.rows() * rows.values.cols();
  const double* from = rows.values.row(0);
  std::transform(from, from + elements, result.values.row(0), function);
  return result;
}

}  // namespace

Rows<double> squares(const Rows<double>& rows) {
  return of_each(rows, [](double x) { return x * x; });
}

Rows<double> magnitudes(const Rows<double>& rows) {
  return of_each(rows, [](double x) { return std::abs(x); });
}

std::vector<double> norms(const Rows<double>& rows) {
  std::vector<double> result(static_cast<size_t>(rows.values.rows()));
  for (int64_t i = 0; i < rows.values.rows(); ++i) {
    const double* row = rows.values.row(i);
    double sum = 0;
    for (int64_t column = 0; column < rows.values.cols(); ++column) {
      sum += row[column] * row[column];
    }
    result[static_cast<size_t>(i)] = std::sqrt(sum);
  }
  return result;
}

void gemm(Transpose op_a, Transpose op_b, double alpha, MatrixRef<const double> a,
          MatrixRef<const double> b, double beta, MatrixRef<double> c) {
  multiply(op_a, op_b, alpha, a, b, beta, c);
}

void gemm(Transpose op_a, Transpose op_b, float alpha, MatrixRef<const float> a,
          MatrixRef<const float> b, float beta, MatrixRef<float> c) {
  multiply(op_a, op_b, alpha, a, b, beta, c);
}

}  // namespace flashbench::verify
