// Alignment checks for vector loads and stores.
#pragma once

#include <cstdint>

#include "attention/tensors.h"

namespace flashbench::kernels {

// True if every row starts at a multiple of 16 bytes and its length is a multiple of 16 bytes.
inline bool rows_aligned(const ConstTensorView& t) {
  const int64_t width = 16 / element_size(t.dtype);
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.batch_stride % width == 0 &&
         t.head_stride % width == 0 && t.row_stride % width == 0 && t.head_dim % width == 0;
}

}  // namespace flashbench::kernels
