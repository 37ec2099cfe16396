// --set: puts a value at a JSON pointer of a config before it is validated.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>

#include "plan/config.h"

namespace flashbench {

// Creates or replaces the value; objects on the way are created, "-" or an array's size appends.
// Returns why it cannot be done, if it cannot.
std::optional<ConfigIssue> apply_override(nlohmann::ordered_json& document, const Override&);

}  // namespace flashbench
