// Which rows of the outputs are checked: all, or as many as the budget pays for.
#pragma once

#include <vector>

#include "attention/problem.h"
#include "verify/oracle.h"
#include "verify/row_blocks.h"

namespace flashbench::verify {

struct Selection {
  std::vector<RowBlock> queries;  // query heads' rows of O and logsumexp, or of dQ
  std::vector<RowBlock> keys;     // key heads' rows of dK and dV; empty for the forward pass
  bool sampled = false;           // not every row
};

// A pure function of its arguments. Forward, a sample takes some rows of every head or, where that
// is still too dear, of some heads, the first and last among them: the first and last rows, rows on
// both sides of likely tile edges and random ones. Backward it takes whole key heads (all their
// dQ, dK and dV), or rows of a single one.
Selection select_rows(const Problem& problem, const OracleBudget& budget);

}  // namespace flashbench::verify
