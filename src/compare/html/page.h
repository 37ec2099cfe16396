// A comparison as one HTML file that opens without a network: the verdicts, charts of the ratios,
// and for each row the samples of both sides.
#pragma once

#include <string>

#include "compare/compare.h"
#include "report/record.h"

namespace flashbench {

// `base` and `now` are the results that were compared.
std::string to_html(const Comparison&, const NamedResult& base, const NamedResult& now);

}  // namespace flashbench
