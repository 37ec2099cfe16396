#include "compare/compare.h"

#include <fmt/format.h>

#include <memory>

#include "cli/baseline_flags.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "compare/baseline.h"
#include "compare/present.h"
#include "report/json.h"

namespace flashbench {

namespace {

struct Flags {
  std::string base, now, format = "table", json, markdown;
  ComparisonFlags comparison;
  FilterFlags filter;
};

std::string formatted(const Comparison& comparison, const std::string& format) {
  if (format == "md") return to_markdown(comparison);
  if (format == "json") return to_json(comparison);
  return to_table(comparison);
}

void filter_records(SweepResult& result, const FilterFlags& filter) {
  std::erase_if(result.records, [&](const Record& record) { return !filter.keeps(record.item); });
}

int compare_files(const Flags& flags) {
  const CompareOptions options = flags.comparison.options();
  for (const std::string& path : {flags.json, flags.markdown}) require_writable_text(path);
  SweepResult base = read_baseline(flags.base), now = read_result(flags.now);
  filter_records(base, flags.filter);
  filter_records(now, flags.filter);
  const Comparison comparison = compare(base, now, options, flags.base, flags.now);

  write_text(flags.json, to_json(comparison));
  write_text(flags.markdown, to_markdown(comparison));
  const bool stdout_is_taken = flags.json == "-" || flags.markdown == "-";
  if (!stdout_is_taken) fmt::print("{}", formatted(comparison, flags.format));
  return flags.comparison.exit_code(comparison);
}

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "compare", "Compare two result files row by row: faster, slower or newly wrong");
  auto flags = std::make_shared<Flags>();
  command
      .add_option("base", flags->base,
                  "Result file to compare with (JSON), or - for standard input")
      ->required()
      ->type_name("FILE");
  command.add_option("new", flags->now, "Result file to judge (JSON)")
      ->required()
      ->type_name("FILE");
  flags->comparison.add(command);
  flags->filter.add(command);
  command.add_option("-f,--format", flags->format, "What to print: table, json or md")
      ->check(CLI::IsMember({"table", "json", "md"}))
      ->capture_default_str();
  command.add_option("--json", flags->json, "Write the comparison as JSON (- for stdout)")
      ->type_name("FILE");
  command.add_option("--md", flags->markdown, "Write the comparison as Markdown (- for stdout)")
      ->type_name("FILE");
  command.callback([flags, &invocation] { invocation.exit_code = compare_files(*flags); });
}

}  // namespace flashbench
