// Formats rows of cells as text, for the console and for Markdown.
#pragma once

#include <string>
#include <vector>

#include "report/cells.h"

namespace flashbench {

// Columns have the widths of the cells. The first is left-aligned, the others right-aligned.
std::string console_headings(const std::vector<Cell>&);
std::string console_row(const std::vector<Cell>&);

// A row of a table; its first column is the case and its last a note.
std::string markdown_headings(const std::vector<Cell>&);
std::string markdown_row(const Case&, const std::vector<Cell>&, const std::string& note);

}  // namespace flashbench
