// A tile of 16-bit elements in shared memory, swizzled so that neither copies of 16-byte chunks nor
// ldmatrix, plain or transposed, cause bank conflicts.
#pragma once

#include <cstdint>

#include "kernels/ptx/cp_async.h"

namespace flashbench::kernels::mma {

// A [kRows, kColumns] tile, stored as panels of 64 columns (32 where 64 does not divide kColumns),
// each [kRows, panel]. The swizzle combines the chunk index with the row index by exclusive or, so
// that the same chunk of 8 successive rows lies in different banks.
template <int kRows, int kColumns>
struct SharedTile {
  static_assert(kRows % 8 == 0 && kColumns % 32 == 0);
  static constexpr int kPanelColumns = kColumns % 64 == 0 ? 64 : 32;
  static constexpr int kPanels = kColumns / kPanelColumns;
  static constexpr int kRowBytes = kPanelColumns * 2;
  static constexpr int kRowChunks = kRowBytes / 16;
  static constexpr int kPanelBytes = kRows * kRowBytes;
  static constexpr int kBytes = kPanels * kPanelBytes;
  static constexpr int kElements = kRows * kColumns;

  // Byte offset of chunk `chunk` (8 columns) of `row` within the first panel.
  __device__ static constexpr int chunk_offset(int row, int chunk) {
    const int swizzle = kPanelColumns == 64 ? row % 8 : row / 2 % 4;
    return row * kRowBytes + (chunk ^ swizzle) * 16;
  }

  // offset: byte offset of chunk `chunk` of `row`, in any panel. element: index of one element.
  __device__ static uint32_t offset(int row, int chunk) {
    return chunk / kRowChunks * kPanelBytes + chunk_offset(row, chunk % kRowChunks);
  }
  __device__ static uint32_t element(int row, int column) {
    return offset(row, column / 8) / 2 + column % 8;
  }

  // Turns the address of (row, chunk) into that of (row + rows, chunk + chunks). `rows` must be a
  // multiple of 8, and `chunks` must have no bit in common with the index of the chunk in its
  // panel.
  __device__ static uint32_t move(uint32_t address, int rows, int chunks) {
    return (address ^ (chunks % kRowChunks * 16)) + chunks / kRowChunks * kPanelBytes +
           rows * kRowBytes;
  }

  // Moves a lane's offset, made by chunk_offset(row, 0 or 1), by 16 * `step` columns.
  __device__ static constexpr uint32_t column_step(uint32_t offset, int step) {
    constexpr int kSteps = kPanelColumns / 16;
    return (offset ^ static_cast<uint32_t>(step % kSteps * 32)) +
           static_cast<uint32_t>(step / kSteps * kPanelBytes);
  }
};

}  // namespace flashbench::kernels::mma
