// Checks of a result file beyond its types, so that nothing computed from it or printed of it can
// fail. Each throws std::invalid_argument.
#pragma once

#include <vector>

#include "plan/strict_json.h"
#include "report/record.h"

namespace flashbench {

// A number of bytes from 0 to one exbibyte, so that sums of a few do not overflow.
int64_t byte_count(const StrictJson&);

// A number of at least 0; `or_nan` also takes null, which stands for NaN.
double not_negative(const StrictJson&);
double not_negative_or_nan(const StrictJson&);

// An integer of at least 0.
int64_t count(const StrictJson&);

// FLOPs, pairs and bytes derived from the problem must not overflow.
void require_countable(const Problem&);

// The parts of "config", "meta" and "devices" that reports print must have the expected types.
void require_environment(const StrictJson& result);

// A row that is ok was verified, every output of it, and has no reason why not; and only such a row
// may have times. `row` is where the record was read from.
void require_verified(const Record&, const StrictJson& row);

// A result whose meta has "sweep" must have the row of each of its providers on each of its cases.
void require_rows_of_sweep(const StrictJson& meta, const std::vector<Record>&);

// There must be only one record for each case and provider.
void require_distinct(const std::vector<Record>&);

}  // namespace flashbench
