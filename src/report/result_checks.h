// Checks of a result file beyond its types, so that nothing computed from it or printed of it can
// fail. Each throws std::invalid_argument.
#pragma once

#include <vector>

#include "plan/strict_json.h"
#include "report/record.h"

namespace flashbench {

// A number of bytes from 0 to one exbibyte, so that sums of a few do not overflow.
int64_t byte_count(const StrictJson&);

// FLOPs, pairs and bytes derived from the problem must not overflow.
void require_countable(const Problem&);

// The parts of "config", "meta" and "devices" that reports print must have the expected types.
void require_environment(const StrictJson& result);

// There must be only one record for each case and provider.
void require_distinct(const std::vector<Record>&);

}  // namespace flashbench
