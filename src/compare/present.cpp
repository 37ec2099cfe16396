#include "compare/present.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "report/json.h"
#include "report/rows.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

// ---- the figures of a row as text

template <typename T, typename Text>
std::string or_dash(const std::optional<T>& value, Text text) {
  return value ? text(*value) : "-";
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.4g}", seconds * 1e3);
}

std::string factor(double ratio) {
  return ratio < 10 ? fmt::format("{:.3f}", ratio) : fmt::format("{:.4g}", ratio);
}

std::optional<double> median_ratio(const RowComparison& row) {
  if (!row.base_median || !row.now_median) return std::nullopt;
  return *row.now_median / *row.base_median;
}

std::vector<Cell> comparison_cells(const RowComparison& row) {
  return {{"provider", 13, row.provider},
          {"base ms", 10, or_dash(row.base_median, milliseconds)},
          {"new ms", 10, or_dash(row.now_median, milliseconds)},
          {"medians", 9, or_dash(median_ratio(row), factor)},
          {"quartiles", 11, or_dash(row.ratio, factor)},
          {"95% interval", 18,
           or_dash(row.interval,
                   [](const Interval& interval) {
                     return factor(interval.low) + " to " + factor(interval.high);
                   })},
          {"/ GEMM", 8, or_dash(row.anchored_ratio, factor)},
          {"verdict", 15, std::string(name(row.change))}};
}

std::vector<std::string> notes(const RowComparison& row) {
  std::vector<std::string> notes;
  if (!row.reason.empty()) notes.push_back(row.reason);
  if (!row.needs.empty()) notes.push_back("to decide it: " + row.needs);
  notes.insert(notes.end(), row.load.begin(), row.load.end());
  return notes;
}

// ---- the lines above and below the rows

std::string described(const std::string& source, const Json& meta) {
  const auto text = [&](const char* key) {
    return meta.contains(key) && meta[key].is_string() ? meta[key].get<std::string>() : "unknown";
  };
  return fmt::format("{}: flashbench {} ({:.12}), {}", source, text("version"), text("git_commit"),
                     text("started"));
}

std::vector<std::string> heading_lines(const Comparison& comparison) {
  std::vector<std::string> lines{"base " + described(comparison.base_name, comparison.base_meta),
                                 "new  " + described(comparison.now_name, comparison.now_meta)};
  for (const Difference& difference : comparison.differences) {
    lines.push_back(
        fmt::format("compared although {} differs: \"{}\" in the base, \"{}\" in the new result",
                    difference.key, difference.base, difference.now));
  }
  return lines;
}

std::vector<std::string> closing_lines(const Comparison& comparison) {
  std::vector<std::string> counts;
  for (Change change : kChanges) {
    if (const int count = comparison.count(change)) {
      counts.push_back(fmt::format("{} {}", count, name(change)));
    }
  }
  std::vector<std::string> lines{
      fmt::format("{} rows: {}", comparison.rows.size(), fmt::join(counts, ", "))};
  for (const auto& [provider, mean] : comparison.mean_ratios()) {
    lines.push_back(fmt::format("{}: {:.3f}x the base's time (geometric mean of {} rows)", provider,
                                mean.ratio, mean.rows));
  }
  return lines;
}

// ---- JSON

template <typename T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

std::optional<double> in_ms(std::optional<double> seconds) {
  if (seconds) *seconds *= 1e3;
  return seconds;
}

Json row_json(const RowComparison& row) {
  Json json{{"key", row.item.key()},
            {"case", case_to_json(row.item)},
            {"provider", row.provider},
            {"verdict", name(row.change)},
            {"reason", row.reason},
            {"needs", row.needs},
            {"load", row.load},
            {"basis", row.basis ? Json(name(*row.basis)) : Json()},
            {"undisturbed_base_samples", row.base_undisturbed},
            {"undisturbed_new_samples", row.now_undisturbed},
            {"base_median_ms", optional_json(in_ms(row.base_median))},
            {"new_median_ms", optional_json(in_ms(row.now_median))},
            {"median_ratio", optional_json(median_ratio(row))},
            {"ratio", optional_json(row.ratio)},
            {"ratio_ci95_low", Json()},
            {"ratio_ci95_high", Json()},
            {"ratio_to_gemm", optional_json(row.anchored_ratio)},
            {"p_holm", optional_json(row.p)}};
  if (row.interval) {
    json["ratio_ci95_low"] = row.interval->low;
    json["ratio_ci95_high"] = row.interval->high;
  }
  return json;
}

Json options_json(const CompareOptions& options) {
  return {{"noise_threshold", options.noise_threshold},
          {"same_within", options.same_within},
          {"significance", options.significance},
          {"allow_different", options.allow_different}};
}

}  // namespace

std::string to_table(const Comparison& comparison) {
  std::string table;
  for (const std::string& line : heading_lines(comparison)) table += line + "\n";
  std::string heading;
  for (const RowComparison& row : comparison.rows) {
    const std::vector<Cell> cells = comparison_cells(row);
    if (heading.empty()) table += fmt::format("\n{}", console_headings(cells));
    if (const std::string next = case_heading(row.item); next != heading) {
      heading = next;
      table += "\n" + heading + "\n";
    }
    table += console_row(cells);
    for (const std::string& note : notes(row)) table += fmt::format("  {}\n", note);
  }
  table += "\n";
  for (const std::string& line : closing_lines(comparison)) table += line + "\n";
  return table;
}

std::string to_markdown(const Comparison& comparison) {
  std::string markdown = "# Comparison\n\n";
  for (const std::string& line : heading_lines(comparison)) markdown += "- " + line + "\n";
  bool first = true;
  for (const RowComparison& row : comparison.rows) {
    const std::vector<Cell> cells = comparison_cells(row);
    if (first) markdown += fmt::format("\n{}", markdown_headings(cells));
    first = false;
    markdown += markdown_row(row.item, cells, fmt::format("{}", fmt::join(notes(row), "; ")));
  }
  markdown += "\n";
  for (const std::string& line : closing_lines(comparison)) markdown += line + "  \n";
  return markdown;
}

Json comparison_json(const Comparison& comparison) {
  Json json{{"comparison_schema_version", kComparisonSchemaVersion},
            {"base", {{"source", comparison.base_name}, {"meta", comparison.base_meta}}},
            {"new", {{"source", comparison.now_name}, {"meta", comparison.now_meta}}},
            {"options", options_json(comparison.options)},
            {"regressed", comparison.regressed()},
            {"counts", Json::object()},
            {"geometric_mean_ratios", Json::object()},
            {"differences", Json::array()},
            {"rows", Json::array()}};
  for (Change change : kChanges) {
    json["counts"][std::string(name(change))] = comparison.count(change);
  }
  for (const auto& [provider, mean] : comparison.mean_ratios()) {
    json["geometric_mean_ratios"][provider] = {{"ratio", mean.ratio}, {"rows", mean.rows}};
  }
  for (const Difference& difference : comparison.differences) {
    json["differences"].push_back(
        {{"key", difference.key}, {"base", difference.base}, {"new", difference.now}});
  }
  for (const RowComparison& row : comparison.rows) json["rows"].push_back(row_json(row));
  return json;
}

std::string to_json(const Comparison& comparison) {
  return comparison_json(comparison).dump(1) + "\n";
}

}  // namespace flashbench
