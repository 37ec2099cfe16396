#include "report/rows.h"

#include <fmt/format.h>

namespace flashbench {

namespace {

template <typename Text>
std::string line(const std::vector<Cell>& row, Text text) {
  std::string result;
  for (size_t i = 0; i < row.size(); ++i) {
    result += i == 0 ? fmt::format("{:<{}}", text(row[i]), row[i].width)
                     : fmt::format("{:>{}}", text(row[i]), row[i].width);
  }
  return result + "\n";
}

// A pipe would end the cell, a line break the row.
std::string escaped(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '|') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

}  // namespace

std::string console_headings(const std::vector<Cell>& row) {
  return line(row, [](const Cell& cell) { return cell.heading; });
}

std::string console_row(const std::vector<Cell>& row) {
  return line(row, [](const Cell& cell) { return std::string_view(cell.text); });
}

std::string markdown_headings(const std::vector<Cell>& row) {
  std::string headings = "| case |", rule = "|---|";
  for (const Cell& cell : row) {
    headings += fmt::format(" {} |", cell.heading);
    rule += &cell == &row.front() ? "---|" : "---:|";
  }
  return headings + " note |\n" + rule + "---|\n";
}

std::string markdown_row(const Case& item, const std::vector<Cell>& row, const std::string& note) {
  std::string markdown = fmt::format("| {} |", escaped(case_heading(item)));
  for (const Cell& cell : row) markdown += fmt::format(" {} |", escaped(cell.text));
  return markdown + (note.empty() ? " |\n" : fmt::format(" {} |\n", escaped(note)));
}

}  // namespace flashbench
