// Tensor maps, which describe tensors to TMA on Hopper.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "attention/tensors.h"

namespace flashbench::kernels::sm90 {

// The map for copies of boxes of `box_columns` columns x `box_rows` (at most 256) rows of one head
// at coordinates (column, row, head, batch). In shared memory the rows have 128 or 64 bytes, with
// the swizzle of that size; elements outside the tensor are zeros. The tensor has elements of 16
// bits, or of 8, and its rows start at multiples of 16 bytes. Throws CudaError.
CUtensorMap tensor_map(const ConstTensorView&, int box_rows, int box_columns = 64);

// The map for copies of the same boxes from one request, which its own number of rows limits: rows
// behind its last are zeros when read and stay as they are when written, whoever's they are.
//
// TMA compares coordinates with the map, which knows no request. So the map has 2^30 rows, and a
// copy numbers a request's rows such that its last row is the last of the map (RowsOfRequest in
// roles.cuh). Two more coordinates lead back to the request: where its rows end, in RowSteps; and
// 2^30, whose stride, 2^34 bytes less those of a row, cancels the 2^30 rows modulo 2^64. Triton's
// ragged_tma does the same.
struct RowSteps {
  int request, row;  // from one request, or row, to the next
};
struct RequestMap {
  CUtensorMap map;
  RowSteps steps;
};

// Rows of a ragged tensor count through all requests, those of another from the start of a request.
// Throws CudaError.
RequestMap request_map(const ConstTensorView&, int box_rows);

// The map for copies of `box` floats (at most 256, a multiple of 4) from one of `rows` rows of
// `columns` (a multiple of 4) floats each, at coordinates (column, row). `values` is 16-byte
// aligned. Throws CudaError.
CUtensorMap float_rows_map(const float* values, int64_t rows, int64_t columns, int box);

}  // namespace flashbench::kernels::sm90
