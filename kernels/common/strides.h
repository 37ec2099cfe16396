// The strides of a tensor, as kernels receive them.
#pragma once

#include <cstdint>

#include "attention/tensors.h"

namespace flashbench::kernels {

// [batch, heads, rows, head_dim] in memory, strides in elements.
struct Strides {
  int64_t batch, head, row;
};

template <typename Data>
Strides strides_of(const BasicTensorView<Data>& t) {
  return {t.batch_stride, t.head_stride, t.row_stride};
}

}  // namespace flashbench::kernels
