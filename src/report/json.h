// The result file: everything that a sweep measured, raw samples included. Derived figures are
// written for readers of the file, and recomputed when it is read.
#pragma once

#include <filesystem>
#include <string>

#include "report/record.h"

namespace flashbench {

// Raised with every incompatible change; README and CHANGELOG describe the changes.
inline constexpr int kSchemaVersion = 1;

std::string to_json(const SweepResult&);

// Parts that are also used alone, in journals, in pages and between processes. `all` are the
// records to search for naive's, for the speed-up over it. The readers throw std::exception for
// invalid input.
nlohmann::ordered_json case_to_json(const Case&);
nlohmann::ordered_json record_to_json(const Record&, const std::vector<Record>& all);
nlohmann::ordered_json ceiling_to_json(const Ceiling&);
nlohmann::ordered_json kernels_to_json(const std::vector<KernelFacts>&);
nlohmann::ordered_json counter_state_to_json(const CounterState&);
nlohmann::ordered_json counter_report_to_json(const CounterReport&);
Case case_from_json(const nlohmann::ordered_json&);
Record record_from_json(const nlohmann::ordered_json&);
Ceiling ceiling_from_json(const nlohmann::ordered_json&);
CounterState counter_state_from_json(const nlohmann::ordered_json&);
CounterReport counter_report_from_json(const nlohmann::ordered_json&);

// Parses JSON without duplicate keys or overflow, and within the nesting depth and size of any
// result. Throws std::invalid_argument, naming the place.
nlohmann::ordered_json parse_strictly(std::string_view text);

// Throws FileError, naming the source and the place, if it is not a result file of this version.
// Every text is printable (plan/json_text.h): others may have written the file.
SweepResult result_from_json(std::string_view text, const std::string& source);
// Reads a file as it was written, or compressed by gzip.
SweepResult read_result(const std::filesystem::path&);

}  // namespace flashbench
