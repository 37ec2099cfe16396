#include "compare/compare.h"

#include <fmt/format.h>

#include <memory>

#include "cli/baseline_flags.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "compare/baseline.h"
#include "compare/html/page.h"
#include "compare/present.h"
#include "compare/shards.h"
#include "report/json.h"

namespace flashbench {

namespace {

struct Flags {
  std::string base, now, format = "table", out = "-", json, markdown;
  ComparisonFlags comparison;
  FilterFlags filter;
};

std::string formatted(const Comparison& comparison, const NamedResult& base, const NamedResult& now,
                      const std::string& format) {
  if (format == "md") return to_markdown(comparison);
  if (format == "json") return to_json(comparison);
  if (format == "html") return to_html(comparison, base, now);
  return to_table(comparison);
}

SweepResult filtered(SweepResult result, const FilterFlags& filter) {
  std::erase_if(result.records, [&](const Record& record) { return !filter.keeps(record.item); });
  return result;
}

int compare_files(const Flags& flags) {
  const CompareOptions options = flags.comparison.options();
  const bool stdout_is_taken = flags.json == "-" || flags.markdown == "-";
  const std::string out = flags.out == "-" && stdout_is_taken ? "" : flags.out;
  check_outputs({{"--json", flags.json}, {"--md", flags.markdown}, {"--out", out}},
                {flags.base, flags.now});
  const NamedResult base{flags.base, filtered(read_baseline(flags.base), flags.filter)};
  const NamedResult now{flags.now, filtered(read_result_or_shards(flags.now), flags.filter)};
  const Comparison comparison = compare(base.result, now.result, options, base.source, now.source);

  write_text(flags.json, to_json(comparison));
  write_text(flags.markdown, to_markdown(comparison));
  if (!out.empty()) write_text(out, formatted(comparison, base, now, flags.format));
  return flags.comparison.exit_code(comparison);
}

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "compare", "Compare two result files row by row: faster, slower or newly wrong");
  auto flags = std::make_shared<Flags>();
  command
      .add_option("base", flags->base,
                  "Result file to compare with (.json or .json.gz), - for standard input, or a "
                  "folder with the shards of a sweep")
      ->required()
      ->type_name("FILE");
  command
      .add_option("new", flags->now, "Result file to judge, or a folder with the shards of a sweep")
      ->required()
      ->type_name("FILE");
  flags->comparison.add(command);
  flags->filter.add(command);
  command.add_option("-f,--format", flags->format, "table, json, md or html")
      ->check(CLI::IsMember({"table", "json", "md", "html"}))
      ->capture_default_str();
  command.add_option("-o,--out", flags->out, "Write that to this file (- for stdout)")
      ->type_name("FILE")
      ->capture_default_str();
  command.add_option("--json", flags->json, "Write the comparison as JSON (- for stdout)")
      ->type_name("FILE");
  command.add_option("--md", flags->markdown, "Write the comparison as Markdown (- for stdout)")
      ->type_name("FILE");
  command.callback([flags, &invocation] { invocation.exit_code = compare_files(*flags); });
}

}  // namespace flashbench
