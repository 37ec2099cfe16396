// The table of all CSV columns: each has a name and a function that derives its text from a record.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "report/record.h"

namespace flashbench {

struct Column {
  std::string_view name;
  bool is_text;  // text is neutralised against spreadsheet formulas; figures are not
  std::function<std::string(const Record&, const SweepResult&)> text;  // empty: absent
  bool optional = false;  // left out of a file in which no row has it
};

const std::vector<Column>& columns();

}  // namespace flashbench
