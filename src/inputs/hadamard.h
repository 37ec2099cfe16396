// A rotation of rows that spreads outliers over all columns and leaves dot products as they are,
// but for a factor.
#pragma once

#include <cstdint>
#include <span>

namespace flashbench {

// The random sign of a column, 1 or -1: the same in every problem.
float hadamard_sign(int64_t column);

// row = H (signs * row) in fp32, for a Hadamard matrix H of the row's size (has_hadamard of
// attention/recipe.h): its elements are 1 and -1, and H H^T = size. So of two rows it multiplies
// the dot product by their size. H is Sylvester's 2^k matrix, or Paley's of 12 times that.
void rotate(std::span<float> row);

}  // namespace flashbench
