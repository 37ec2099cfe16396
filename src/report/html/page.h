// Results as one HTML file that opens without a network: charts, a table of all rows, the
// environment.
#pragma once

#include <string>
#include <vector>

#include "report/record.h"

namespace flashbench {

// The results stand beside each other; no figure is made of two of them.
std::string to_html(const std::vector<NamedResult>&);

}  // namespace flashbench
