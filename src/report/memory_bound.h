// Figures of rows whose limit is memory: forward passes with few FLOPs for each byte
// (is_streamed). All are empty for other rows.
#pragma once

#include <optional>
#include <string>

#include "report/record.h"

namespace flashbench {

// Bytes of K and V, each row once, over the median; empty where there is no ceiling to compare
// with.
std::optional<double> kv_bytes_per_second(const Record&, const SweepResult&);

// The share of the row's time that its compulsory bytes take at the rate of the ceiling `read`, and
// that `stream` takes in the same rounds. Empty beyond 105%: then it is no ceiling for this row.
std::optional<double> share_of_read(const Record&, const SweepResult&);
std::optional<double> share_of_stream(const Record&);

// Seconds of the median beyond those of its compulsory bytes at the rate of `read`. Empty where the
// FLOPs take longer at the rate of the GEMM, and where share_of_read is.
std::optional<double> fixed_seconds(const Record&, const SweepResult&);

// Sentences on the shares that are left out. With warm caches, memory is not what bounds a row that
// exceeds it, and nothing is said.
std::string read_note(const Record&, const SweepResult&);
std::string stream_note(const Record&);

// The standard deviation of the requests' kv_len over their mean; empty for equal lengths.
std::optional<double> length_variation(const Problem&);

// The share of the rows of the used pages that hold no key; empty without pages.
std::optional<double> page_waste(const Problem&);

}  // namespace flashbench
