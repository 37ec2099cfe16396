// Combines the results of a query over two sets of keys.
#pragma once

#include <cstdint>

namespace flashbench {

// O and logsumexp of a query over some of its keys: O is a row of `columns`, in fp32 because the
// rounding of 16-bit partial results would grow with the number of parts.
struct PartialRow {
  float* o = nullptr;
  float* logsumexp = nullptr;
};

// Adds what a query saw in `part` to what it saw in `sum`, whose keys are others:
//
//   m = max(L1, L2)   w_i = exp(L_i - m)   L = m + log(w1 + w2)   O = (w1 O1 + w2 O2) / (w1 + w2)
//
// No power is above 1, so that none overflows. A part that saw no key has L = -infinity and counts
// for nothing, whatever its O; where both saw none, O = 0 and L = -infinity.
void merge_rows(const PartialRow& sum, const PartialRow& part, int64_t columns);
using Merge = void (*)(const PartialRow& sum, const PartialRow& part, int64_t columns);

}  // namespace flashbench
