// Selects the rows of the outputs to check: all, or as many as the budget allows.
#pragma once

#include <vector>

#include "attention/problem.h"
#include "verify/oracle.h"
#include "verify/row_blocks.h"

namespace flashbench::verify {

struct Selection {
  std::vector<RowBlock> queries;  // rows of O and logsumexp, or of dQ, by query head
  std::vector<RowBlock> keys;     // rows of dK and dV, by key head; empty for the forward pass
  bool sampled = false;           // false if every row is selected
};

// A pure function of its arguments. Forward, a sample takes some rows of every head or, where that
// is still too dear, of some heads, the first and last among them: the first and last rows, rows at
// which the mask or a window starts or stops to hide keys, rows on both sides of likely tile edges
// and random ones. Backward it takes whole key heads (all their dQ, dK and dV), or rows of a single
// one. Of requests of different lengths, the one with the most pairs is always among them.
Selection select_rows(const Problem& problem, const OracleBudget& budget);

}  // namespace flashbench::verify
