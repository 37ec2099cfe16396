#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "report/csv.h"
#include "report/json.h"
#include "report/markdown.h"
#include "report/table.h"

namespace flashbench {

namespace {

std::string formatted(const SweepResult& result, const std::string& format) {
  if (format == "csv") return to_csv(result);
  if (format == "md") return to_markdown(result);
  if (format == "json") return to_json(result);
  return to_table(result);
}

}  // namespace

void add_report(CLI::App& app, Invocation& invocation) {
  CLI::App& command =
      *app.add_subcommand("report", "Print a result file again as a table, CSV, Markdown or JSON");
  struct Flags {
    std::string path, format = "table";
  };
  auto flags = std::make_shared<Flags>();
  command.add_option("result", flags->path, "Result file (JSON)")->required()->type_name("FILE");
  command.add_option("-f,--format", flags->format, "table, csv, md or json")
      ->check(CLI::IsMember({"table", "csv", "md", "json"}))
      ->capture_default_str();
  command.callback([flags, &invocation] {
    fmt::print("{}", formatted(read_result(flags->path), flags->format));
    invocation.exit_code = 0;
  });
}

}  // namespace flashbench
