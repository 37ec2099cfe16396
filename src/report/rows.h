// Rows of cells as text, for the console and for Markdown.
#pragma once

#include <string>
#include <vector>

#include "report/cells.h"

namespace flashbench {

// In columns as wide as the cells say: the first to the left, the others to the right.
std::string console_headings(const std::vector<Cell>&);
std::string console_row(const std::vector<Cell>&);

// A row of a table whose first column is the case and whose last is a note.
std::string markdown_headings(const std::vector<Cell>&);
std::string markdown_row(const Case&, const std::vector<Cell>&, const std::string& note);

}  // namespace flashbench
