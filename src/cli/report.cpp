#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "attention/error.h"
#include "attention/exit_codes.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "compare/beside.h"
#include "compare/shards.h"
#include "plan/json_text.h"
#include "report/csv.h"
#include "report/html/page.h"
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

// A journal is read as the result that it would become: others may have written it, too.
SweepResult read(const std::string& path) {
  if (!path.ends_with(".journal")) return read_result_or_shards(path);
  const SweepResult result = journal_result(read_journal(std::filesystem::path(path)));
  return result_from_json(to_json(result), path);
}

// Reads the files, joins the shards among them, and keeps the rows that the filter keeps.
std::vector<NamedResult> read_all(const std::vector<std::string>& paths,
                                  const FilterFlags& filter) {
  std::vector<NamedResult> results;
  for (const std::string& path : paths) results.push_back({printable(path), read(path)});
  results = with_shards_joined(std::move(results));
  for (NamedResult& named : results) {
    const auto left_out = std::erase_if(
        named.result.records, [&](const Record& record) { return !filter.keeps(record.item); });
    if (left_out > 0) named.result.meta.erase("sweep");  // whose rows it no longer has
  }
  const bool empty = std::all_of(results.begin(), results.end(), [](const NamedResult& named) {
    return named.result.records.empty();
  });
  if (empty && !filter.filters.empty()) throw BadInput("report: no case is left after --filter");
  return results;
}

// One result as it is, several as one. A page shows them apart, whatever they are of.
std::string formatted(std::vector<NamedResult> results, const std::string& format) {
  if (format == "html") return to_html(results);
  return formatted(
      results.size() == 1 ? std::move(results.front().result) : beside(std::move(results)), format);
}

}  // namespace

void add_report(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("report",
                                          "Print result files, or the journal of an unfinished "
                                          "sweep, together as one table, CSV, Markdown "
                                          "or JSON, or beside each other as an HTML page");
  struct Flags {
    std::vector<std::string> paths;
    std::string format = "table", out = "-";
    FilterFlags filter;
  };
  auto flags = std::make_shared<Flags>();
  command
      .add_option("result", flags->paths,
                  "Result files (.json or .json.gz; - for standard input), journals (.journal), or "
                  "folders with the shards of a sweep; shards become one result")
      ->required()
      ->type_name("FILE");
  command.add_option("-f,--format", flags->format, "table, csv, md, json or html")
      ->check(CLI::IsMember({"table", "csv", "md", "json", "html"}))
      ->capture_default_str();
  command.add_option("-o,--out", flags->out, "Write to this file (- for stdout)")
      ->type_name("FILE")
      ->capture_default_str();
  flags->filter.add(command);
  command.callback([flags, &invocation] {
    check_outputs({{"--out", flags->out}}, flags->paths);
    write_text(flags->out, formatted(read_all(flags->paths, flags->filter), flags->format));
    invocation.exit_code = exit_codes::kOk;
  });
}

}  // namespace flashbench
