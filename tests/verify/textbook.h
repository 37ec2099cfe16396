// Attention and its gradients in long double by the definition, one triple loop after another.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"

namespace flashbench::verify {

// A tensor [batch, heads, length, columns] in C order.
struct Array {
  Array(int64_t batch, int64_t heads_count, int64_t rows, int64_t cols)
      : heads(heads_count),
        length(rows),
        columns(cols),
        values(static_cast<size_t>(batch * heads_count * rows * cols)) {}
  long double& at(int64_t b, int64_t h, int64_t row, int64_t column) {
    return values[static_cast<size_t>(((b * heads + h) * length + row) * columns + column)];
  }

  int64_t heads, length, columns;
  std::vector<long double> values;
};

struct Textbook {
  Array o, logsumexp, dq, dk, dv;
};

// The gradients are zero for a forward problem.
Textbook textbook_attention(const Problem& problem, const Inputs& inputs);

}  // namespace flashbench::verify
