// Tensor maps: how the copy engine (TMA) of Hopper finds its way in a tensor.
#pragma once

#include <cuda.h>

#include "attention/tensors.h"

namespace flashbench::kernels::sm90 {

// For copies of boxes of 64 columns and `box_rows` (at most 256) rows of one head, coordinates
// (column, row, head, batch), to shared memory in rows of 128 bytes, swizzled by as many; zeros
// where a box ends outside of the tensor. The tensor has 16-bit elements, and its rows start at
// multiples of 16 bytes. Throws CudaError.
CUtensorMap tensor_map(const ConstTensorView&, int box_rows);

}  // namespace flashbench::kernels::sm90
