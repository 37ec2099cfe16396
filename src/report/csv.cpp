#include "report/csv.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/columns.h"

namespace flashbench {

namespace {

constexpr std::string_view kLineEnd = "\r\n";

std::vector<const Column*> used_columns(const SweepResult& result) {
  std::vector<const Column*> used;
  for (const Column& column : columns()) {
    const auto has = [&](const Record& r) { return !column.text(r, result).empty(); };
    if (!column.optional || std::any_of(result.records.begin(), result.records.end(), has)) {
      used.push_back(&column);
    }
  }
  return used;
}

}  // namespace

std::string csv_field(std::string_view value, bool is_text) {
  std::string field(value);
  if (is_text && !field.empty() &&
      std::string_view("=+-@\t\r").find(field[0]) != std::string::npos) {
    field.insert(0, 1, '\'');
  }
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string quoted = "\"";
  for (char c : field) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

bool is_csv(std::string_view text) {
  return text.starts_with(fmt::format("{},{},", columns()[0].name, columns()[1].name));
}

std::string to_csv(const SweepResult& result) {
  std::string csv;
  const auto end_line = [&] { csv.replace(csv.size() - 1, 1, kLineEnd); };  // over the last comma
  const std::vector<const Column*> used = used_columns(result);
  for (const Column* column : used) csv.append(column->name).push_back(',');
  end_line();
  for (const Record& record : result.records) {
    for (const Column* column : used) {
      csv.append(csv_field(column->text(record, result), column->is_text)).push_back(',');
    }
    end_line();
  }
  return csv;
}

}  // namespace flashbench
