// Tensor maps: how the copy engine (TMA) of Hopper finds its way in a tensor.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "attention/tensors.h"

namespace flashbench::kernels::sm90 {

// For copies of boxes of 64 columns and `box_rows` (at most 256) rows of one head, coordinates
// (column, row, head, batch), to shared memory in rows of 128 bytes, swizzled by as many; zeros
// where a box ends outside of the tensor. The tensor has 16-bit elements, and its rows start at
// multiples of 16 bytes. Throws CudaError.
CUtensorMap tensor_map(const ConstTensorView&, int box_rows);

// For copies of `box` (at most 256, a multiple of 4) of the values that `rows` rows have of floats,
// `columns` (a multiple of 4) each, 16-byte aligned, coordinates (column, row). Throws CudaError.
CUtensorMap float_rows_map(const float* values, int64_t rows, int64_t columns, int box);

}  // namespace flashbench::kernels::sm90
