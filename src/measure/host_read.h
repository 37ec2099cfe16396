// Reads memory on the host as fast as a thread can.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace flashbench {

// The sum, modulo 2^64, of the 64-bit words of rows anywhere in memory, in the widest vectors of
// this processor. A row is prefetched one or two KiB before it is summed, because a core's own
// prefetchers stop at the end of a page, and do not know where the next row lies.
class HostReader {
 public:
  // `bytes` is a multiple of 8; `row` need not be aligned. Read until the next call of sum().
  void add(const std::byte* row, int64_t bytes);

  // Of all rows that were added.
  uint64_t sum();

  struct Piece {
    const std::byte* from;
    int64_t bytes;
  };

 private:
  static constexpr size_t kAhead = 4;  // pieces
  static constexpr int64_t kPieceBytes = 256;

  std::array<Piece, 2 * kAhead> pieces_;
  size_t count_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace flashbench
