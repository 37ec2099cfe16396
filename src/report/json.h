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

// Throws FileError, naming the source and the place, for what is not a result file of this version.
SweepResult result_from_json(std::string_view text, const std::string& source);
SweepResult read_result(const std::filesystem::path&);

}  // namespace flashbench
