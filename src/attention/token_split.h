// Which tokens of a sequence each of several devices has.
#pragma once

#include <array>
#include <cstdint>

#include "attention/problem.h"

namespace flashbench {

// The tokens are cut into two chunks for each device, all of the same length but for the last ones,
// which may be shorter or empty. A zigzag gives device r the chunks r and 2P - 1 - r, so that under
// a causal mask all have as much work; contiguous ones are 2r and 2r + 1.
struct TokenSplit {
  Split split = Split::zigzag;
  int64_t tokens = 0;
  int ranks = 1;

  static TokenSplit of(const Problem&);  // whose gpus are set

  int chunks() const { return 2 * ranks; }
  int64_t chunk_length() const { return (tokens + chunks() - 1) / chunks(); }  // of the longest
  RowRange chunk(int number) const;
  std::array<int, 2> chunks_of(int rank) const;  // ascending
  int owner(int chunk) const;
};

}  // namespace flashbench
