#include "report/markdown.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "report/notes.h"
#include "report/rows.h"

namespace flashbench {

namespace {

std::string environment_line(const SweepResult& result) {
  const auto text = [](const nlohmann::ordered_json& json, const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "unknown";
  };
  const auto& device = result.devices.at(0);
  return fmt::format("{}, {} threads, {}; flashbench {} ({}), {}", text(device, "name"),
                     device.value("threads", 0), text(device, "instructions"),
                     text(result.meta, "version"), text(result.meta, "git_commit"),
                     text(result.meta, "started"));
}

}  // namespace

std::string to_markdown(const SweepResult& result) {
  std::string markdown = fmt::format("# {}\n\n{}\n", result.config.value("name", "flashbench"),
                                     environment_line(result));
  if (!result.ceilings.empty()) markdown += "\n";
  for (const Ceiling& ceiling : result.ceilings) {
    markdown += fmt::format("- {}{}: {:.1f} G{} ({})\n",
                            ceiling.source.empty() ? "" : ceiling.source + ": ", ceiling.name,
                            ceiling.rate() * 1e-9, ceiling.unit, ceiling.description);
  }
  bool first = true;
  const Cells cells(result);
  for (const Record& record : result.records) {
    const std::vector<Cell> row = cells.of(record);
    if (first) markdown += fmt::format("\n{}", markdown_headings(row));
    first = false;
    markdown += markdown_row(record.item, row,
                             record.reason.empty()
                                 ? fmt::format("{}", fmt::join(notes(record, result), "; "))
                                 : fmt::format("{}: {}", name(record.status), record.reason));
  }
  markdown += "\n";
  for (const std::string& summary : summary_lines(result)) markdown += summary + "  \n";
  return markdown;
}

}  // namespace flashbench
