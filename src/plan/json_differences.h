// Where two JSON documents differ.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace flashbench {

struct JsonDifference {
  std::string pointer;        // JSON pointer of a value, e.g. "/measure/max_seconds"
  std::string first, second;  // as JSON; "nothing" if it is absent
};

// The values that differ or are on one side only; those of `second` in its order, then the rest.
std::vector<JsonDifference> json_differences(const nlohmann::ordered_json& first,
                                             const nlohmann::ordered_json& second);

// The differences, a line each, or the first 20: "\n  /threads: 2 there, 4 now".
std::string listed(const std::vector<JsonDifference>&, std::string_view second = "now");

}  // namespace flashbench
