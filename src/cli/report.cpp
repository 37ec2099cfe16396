#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "cli/commands.h"
#include "cli/flags.h"
#include "compare/beside.h"
#include "report/csv.h"
#include "report/json.h"
#include "report/markdown.h"
#include "report/table.h"
#include "sweep/journal.h"

namespace flashbench {

namespace {

std::string formatted(const SweepResult& result, const std::string& format) {
  if (format == "csv") return to_csv(result);
  if (format == "md") return to_markdown(result);
  if (format == "json") return to_json(result);
  return to_table(result);
}

SweepResult read(const std::string& path) {
  return path.ends_with(".journal") ? journal_result(read_journal(std::filesystem::path(path)))
                                    : read_result(path);
}

// Reads one file, or several side by side.
SweepResult read_all(const std::vector<std::string>& paths) {
  std::vector<NamedResult> results;
  for (const std::string& path : paths) results.push_back({path, read(path)});
  return results.size() == 1 ? std::move(results.front().result) : beside(std::move(results));
}

}  // namespace

void add_report(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("report",
                                          "Print result files, or the journal of an unfinished "
                                          "sweep, together as one table, CSV, Markdown "
                                          "or JSON");
  struct Flags {
    std::vector<std::string> paths;
    std::string format = "table";
    FilterFlags filter;
  };
  auto flags = std::make_shared<Flags>();
  command
      .add_option("result", flags->paths,
                  "Result files (.json; - for standard input) or journals (.journal)")
      ->required()
      ->type_name("FILE");
  command.add_option("-f,--format", flags->format, "table, csv, md or json")
      ->check(CLI::IsMember({"table", "csv", "md", "json"}))
      ->capture_default_str();
  flags->filter.add(command);
  command.callback([flags, &invocation] {
    SweepResult result = read_all(flags->paths);
    std::erase_if(result.records,
                  [&](const Record& record) { return !flags->filter.keeps(record.item); });
    fmt::print("{}", formatted(result, flags->format));
    invocation.exit_code = 0;
  });
}

}  // namespace flashbench
