// The JSON Schema of sweep configs, and what a document does wrong by it.
#pragma once

#include <nlohmann/json.hpp>

#include <string_view>
#include <vector>

#include "plan/config.h"

namespace flashbench {

// configs/sweep.schema.json as it was when the tool was built (JSON Schema draft 7).
std::string_view sweep_schema_text();

// Everything in which the document departs from the schema, one issue a cause; empty if it is
// valid.
std::vector<ConfigIssue> schema_issues(const nlohmann::ordered_json& document);

}  // namespace flashbench
