// Tensor maps, which describe tensors to TMA on Hopper.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "attention/tensors.h"

namespace flashbench::kernels::sm90 {

// The map for copies of boxes of 64 columns x `box_rows` (at most 256) rows of one head at
// coordinates (column, row, head, batch). In shared memory the rows have 128 bytes, with the
// 128-byte swizzle; elements outside the tensor are zeros. The tensor has 16-bit elements, and its
// rows start at multiples of 16 bytes. Throws CudaError.
CUtensorMap tensor_map(const ConstTensorView&, int box_rows);

// The map for copies of `box` floats (at most 256, a multiple of 4) from one of `rows` rows of
// `columns` (a multiple of 4) floats each, at coordinates (column, row). `values` is 16-byte
// aligned. Throws CudaError.
CUtensorMap float_rows_map(const float* values, int64_t rows, int64_t columns, int box);

}  // namespace flashbench::kernels::sm90
