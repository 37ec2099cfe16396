// CSV according to RFC 4180: one row per record, a fixed header, absent figures empty.
#pragma once

#include <string>
#include <string_view>

#include "report/record.h"

namespace flashbench {

std::string to_csv(const SweepResult&);

// Whether a text begins as those of to_csv() do.
bool is_csv(std::string_view text);

// One field, quoted if necessary. Text that a spreadsheet would take for a formula (it starts with
// = + - @, a tab or a carriage return) gets a leading apostrophe (CWE-1236).
std::string csv_field(std::string_view value, bool is_text);

}  // namespace flashbench
