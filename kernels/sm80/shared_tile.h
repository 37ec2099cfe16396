// A tile of 16-bit rows in shared memory, laid out so that neither copies of 16-byte chunks nor
// ldmatrix, plain or transposed, meet bank conflicts.
#pragma once

#include <cstdint>

#include "kernels/ptx/cp_async.h"

namespace flashbench::kernels::sm80 {

// [kRows, kColumns] as panels of 64 columns (32 where 64 does not divide kColumns), each panel
// [kRows, panel]. The chunks of a row are swapped by an exclusive or with the row's number, so that
// equal chunks of 8 successive rows lie in different banks.
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

  // Byte offset of the chunk (8 columns) `chunk` of `row` within the first panel.
  __device__ static constexpr int chunk_offset(int row, int chunk) {
    const int swizzle = kPanelColumns == 64 ? row % 8 : row / 2 % 4;
    return row * kRowBytes + (chunk ^ swizzle) * 16;
  }

  // Byte offset of the chunk `chunk`, of whichever panel, of `row`; and index of one element.
  __device__ static uint32_t offset(int row, int chunk) {
    return chunk / kRowChunks * kPanelBytes + chunk_offset(row, chunk % kRowChunks);
  }
  __device__ static uint32_t element(int row, int column) {
    return offset(row, column / 8) / 2 + column % 8;
  }

  // The address of some (row, chunk) -> that of (row + rows, chunk + chunks), if `rows` is a
  // multiple of 8 and `chunks` has no bit in common with the chunk's number in its panel.
  __device__ static uint32_t move(uint32_t address, int rows, int chunks) {
    return (address ^ (chunks % kRowChunks * 16)) + chunks / kRowChunks * kPanelBytes +
           rows * kRowBytes;
  }

  // Moves a lane's offset, made by chunk_offset(row, 0 or 1), on to columns 16 * `step` further.
  __device__ static constexpr uint32_t column_step(uint32_t offset, int step) {
    constexpr int kSteps = kPanelColumns / 16;
    return (offset ^ static_cast<uint32_t>(step % kSteps * 32)) +
           static_cast<uint32_t>(step / kSteps * kPanelBytes);
  }
};

}  // namespace flashbench::kernels::sm80
