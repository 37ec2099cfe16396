// What an HTML report shows, as JSON: the scripts of the page read nothing else.
#pragma once

#include <nlohmann/json.hpp>

#include <vector>

#include "report/record.h"

namespace flashbench {

// {"axes": [names], "results": [{"file", "summary", "meta", "devices", "config", "ceilings",
// "rows"}]}. A row has the columns of the CSV by name (absent ones left out), and beside them
// "command", "checks" (the errors of each tensor), "samples" (in time order) and "kernels", where
// there are any.
nlohmann::ordered_json html_document(const std::vector<NamedResult>&);

}  // namespace flashbench
