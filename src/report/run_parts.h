// Figures of the parts of a run that rounds its inputs first (Problem::quantize), each timed alone.
#pragma once

#include <optional>

#include "report/record.h"

namespace flashbench {

// The samples of a part; null if it was not timed.
const Measurement* part_of_run(const Record&, RunPart);

// Seconds: the median of a part.
std::optional<double> part_seconds(const Record&, RunPart);

// Bytes a second: Q, K and V as they are read, and in 8 bits as they are written, over the median.
std::optional<double> rounding_bytes_per_second(const Record&);

// The same over the rate of the ceiling `copy`. Empty beyond 105%: then it is no ceiling.
std::optional<double> rounding_share_of_copy(const Record&, const SweepResult&);

}  // namespace flashbench
