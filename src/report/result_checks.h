// What a result file must be beyond the right types in the right places, so that nothing that is
// computed from it or shown of it can fail. Each throws std::invalid_argument.
#pragma once

#include <vector>

#include "plan/strict_json.h"
#include "report/record.h"

namespace flashbench {

// From 0 to an exbibyte, so that sums of a few do not overflow.
int64_t byte_count(const StrictJson&);

// No FLOPs, pairs or bytes that follow from the problem overflow.
void require_countable(const Problem&);

// What reports show of "config", "meta" and "devices" has the type that they expect.
void require_environment(const StrictJson& result);

// A case and provider have one record.
void require_distinct(const std::vector<Record>&);

}  // namespace flashbench
