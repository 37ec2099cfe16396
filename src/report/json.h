// The result file: all that a sweep found, raw samples included. Derived figures are written for
// readers of the file and computed anew when it is read.
#pragma once

#include <filesystem>
#include <string>

#include "report/record.h"

namespace flashbench {

// Raised with every incompatible change; README and CHANGELOG say what changed.
inline constexpr int kSchemaVersion = 1;

std::string to_json(const SweepResult&);

// The parts that also travel alone: in journals and between processes. `all` are the records that a
// speed-up over naive is looked for in. The readers throw std::exception for anything else.
nlohmann::ordered_json case_to_json(const Case&);
nlohmann::ordered_json record_to_json(const Record&, const std::vector<Record>& all);
nlohmann::ordered_json ceiling_to_json(const Ceiling&);
nlohmann::ordered_json counter_state_to_json(const CounterState&);
nlohmann::ordered_json counter_report_to_json(const CounterReport&);
Case case_from_json(const nlohmann::ordered_json&);
Record record_from_json(const nlohmann::ordered_json&);
Ceiling ceiling_from_json(const nlohmann::ordered_json&);
CounterState counter_state_from_json(const nlohmann::ordered_json&);
CounterReport counter_report_from_json(const nlohmann::ordered_json&);

// JSON without duplicate keys, overflow, or nesting and size beyond those of any result. Throws
// std::invalid_argument, naming the place.
nlohmann::ordered_json parse_strictly(std::string_view text);

// Throws FileError, naming the source and the place, for what is not a result file of this version.
SweepResult result_from_json(std::string_view text, const std::string& source);
SweepResult read_result(const std::filesystem::path&);

}  // namespace flashbench
