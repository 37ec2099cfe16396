#include "verify/reference.h"

#include <utility>

namespace flashbench::verify {

Reference::Reference(std::string tensor_name, Dtype stored_dtype, int64_t column_count,
                     const std::vector<RowBlock>& row_blocks)
    : tensor(std::move(tensor_name)),
      dtype(stored_dtype),
      columns(column_count),
      blocks(&row_blocks) {
  int64_t rows = 0;
  for (const RowBlock& block : row_blocks) {
    first_row.push_back(rows);
    rows += static_cast<int64_t>(block.rows.size());
  }
  value = Matrix<double>(rows, columns);
  bound = Matrix<float>(rows, columns);
}

MatrixRef<double> Reference::values(size_t block) {
  return {value.row(first_row[block]), static_cast<int64_t>((*blocks)[block].rows.size()), columns,
          columns};
}
MatrixRef<const double> Reference::values(size_t block) const {
  return {value.row(first_row[block]), static_cast<int64_t>((*blocks)[block].rows.size()), columns,
          columns};
}
MatrixRef<float> Reference::bounds(size_t block) {
  return {bound.row(first_row[block]), static_cast<int64_t>((*blocks)[block].rows.size()), columns,
          columns};
}
MatrixRef<const float> Reference::bounds(size_t block) const {
  return {bound.row(first_row[block]), static_cast<int64_t>((*blocks)[block].rows.size()), columns,
          columns};
}

}  // namespace flashbench::verify
