#include "report/table.h"

#include <fmt/format.h>

#include "report/cells.h"

namespace flashbench {

namespace {

// The first cell to the left, the others to the right.
template <typename Text>
std::string line(const std::vector<Cell>& row, Text text) {
  std::string result;
  for (size_t i = 0; i < row.size(); ++i) {
    result += i == 0 ? fmt::format("{:<{}}", text(row[i]), row[i].width)
                     : fmt::format("{:>{}}", text(row[i]), row[i].width);
  }
  return result + "\n";
}

}  // namespace

std::string to_table(const SweepResult& result) {
  std::string table;
  std::string heading;
  for (const Record& record : result.records) {
    const std::vector<Cell> row = cells(record, result);
    if (table.empty()) table += line(row, [](const Cell& cell) { return cell.heading; });
    if (const std::string next = case_heading(record.item); next != heading) {
      heading = next;
      table += "\n" + heading + "\n";
    }
    table += line(row, [](const Cell& cell) { return std::string_view(cell.text); });
    if (!record.reason.empty()) {
      table += fmt::format("  {}: {}\n", name(record.status), record.reason);
    }
  }
  table += "\n";
  for (const std::string& summary : summary_lines(result)) table += summary + "\n";
  return table;
}

}  // namespace flashbench
