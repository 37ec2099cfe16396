// Prints a comparison: as a table for the console, 100 columns wide; as Markdown; as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "compare/compare.h"

namespace flashbench {

// Raised with every incompatible change.
inline constexpr int kComparisonSchemaVersion = 1;

std::string to_table(const Comparison&);
std::string to_markdown(const Comparison&);
std::string to_json(const Comparison&);

// What to_json writes.
nlohmann::ordered_json comparison_json(const Comparison&);

}  // namespace flashbench
