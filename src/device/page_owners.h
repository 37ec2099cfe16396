// Whose memory each page of a tensor is in that several GPUs share.
#pragma once

#include <cstddef>
#include <vector>

#include "attention/key_split.h"
#include "attention/tensors.h"
#include "attention/token_split.h"

namespace flashbench {

// A page of memory that several GPUs share, on all GPUs so far. A copy whose rows are in the memory
// of two GPUs takes five times as long (docs/measuring.md), so that a tensor begins with a page.
inline constexpr size_t kSharedPageBytes = size_t{2} << 20;

// Rows of each request, which are of one rank.
struct OwnedRows {
  RowRange rows;
  int rank = 0;
};
std::vector<OwnedRows> owned_rows(const TokenSplit&);
std::vector<OwnedRows> owned_rows(const KeySplit&);  // of K and V

// Bytes [first, end) of an allocation, which are of one rank.
struct OwnedBytes {
  size_t first = 0, end = 0;
  int rank = 0;

  bool operator==(const OwnedBytes&) const = default;
};

// Pages [first, first + count).
struct OwnedPages {
  size_t first = 0, count = 0;
  int rank = 0;

  bool operator==(const OwnedPages&) const = default;
};

// The rows of a tensor that begins at byte `begin` of its allocation: runs without another rank's
// row in between, in the order of their first bytes.
std::vector<OwnedBytes> owned_bytes(const ConstTensorView&, size_t begin,
                                    const std::vector<OwnedRows>&);

// A page is in the memory of the rank that has most of its bytes, the lowest of several. Pages of
// which nobody has any go with the page before. Neighbours of one rank are together.
std::vector<OwnedPages> pages_by_owner(size_t bytes, size_t page_bytes,
                                       const std::vector<OwnedBytes>&);

}  // namespace flashbench
