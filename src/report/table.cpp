#include "report/table.h"

#include <fmt/format.h>

#include "report/notes.h"
#include "report/rows.h"

namespace flashbench {

std::string to_table(const SweepResult& result) {
  std::string table;
  std::string heading;
  const Cells cells(result);
  for (const Record& record : result.records) {
    const std::vector<Cell> row = cells.of(record);
    if (table.empty()) table += console_headings(row);
    if (const std::string next = case_heading(record.item); next != heading) {
      heading = next;
      table += "\n" + heading + "\n";
    }
    table += console_row(row);
    if (!record.reason.empty()) {
      table += fmt::format("  {}: {}\n", name(record.status), record.reason);
    }
    for (const std::string& note : notes(record, result))
      table += fmt::format("  note: {}\n", note);
  }
  table += "\n";
  for (const std::string& summary : summary_lines(result)) table += summary + "\n";
  return table;
}

}  // namespace flashbench
