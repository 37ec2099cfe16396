// The block table of a problem with a paged K/V cache.
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace flashbench {

// The table that the problem gives, or the one of its page order:
//   linear    Problem::linear_table: request after request, from the pool's first page on
//   reversed  the same from the pool's last page down
//   shuffled  the same through a permutation of the pool, drawn from the seed: the formula is in
//             docs/verifying.md
// Entries behind a request's last page are BlockTable::kNoPage.
BlockTable make_block_table(const Problem&, uint64_t seed);

}  // namespace flashbench
