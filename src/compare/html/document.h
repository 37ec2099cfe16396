// What the HTML page of a comparison shows, as JSON: the scripts of the page read nothing else.
#pragma once

#include <nlohmann/json.hpp>

#include "compare/compare.h"
#include "report/record.h"

namespace flashbench {

// html_document() of both sides, {base, new}, and beside it "comparison": comparison_json() without
// what the sides say, and "conditions" [{"key", "base", "new"}]. Its rows have the numbers of their
// rows in the two results, "base" and "new", null where a side has none.
nlohmann::ordered_json html_document(const Comparison&, const NamedResult& base,
                                     const NamedResult& now);

}  // namespace flashbench
