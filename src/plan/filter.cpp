// --filter: which cases to keep.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "plan/axis.h"
#include "plan/config.h"
#include "plan/nearest.h"

namespace flashbench {

namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::vector<std::string> names_of_axes() {
  std::vector<std::string> names;
  for (const Axis& axis : axes()) names.emplace_back(axis.name);
  return names;
}

// Whether the text could be a value of an axis of numbers.
bool is_number(const Axis& axis, std::string_view text) {
  if (text == "default") return axis.get(Case{}).is_null();
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end && std::isfinite(value);
}

bool contains(const std::vector<std::string>& values, std::string_view value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

CaseFilter::CaseFilter(std::string_view text) {
  std::vector<ConfigIssue> issues;
  const std::vector<std::string> known = names_of_axes();
  for (const std::string& term : split(text, ',')) {
    const size_t equals = term.find('=');
    if (term.empty()) {
      issues.push_back({"", "expected AXIS=VALUE on both sides of a comma, got nothing"});
      continue;
    }
    if (equals == std::string::npos) {
      issues.push_back(
          {"", fmt::format("expected AXIS=VALUE or AXIS=VALUE|VALUE, got \"{}\"", term)});
      continue;
    }
    const std::string name = term.substr(0, equals);
    const std::vector<std::string> values = split(term.substr(equals + 1), '|');
    if (!contains(known, name)) {
      const std::string meant = did_you_mean(name, known);
      issues.push_back({"", fmt::format("expected an axis ({}), got \"{}\"{}",
                                        fmt::join(known, ", "), name, meant)});
      continue;
    }
    const Axis& wanted = axis(name);
    for (const std::string& value : values) {
      const Axis::Names* allowed = wanted.names();
      if (!allowed && !wanted.objects() && !is_number(wanted, value)) {
        issues.push_back({"", fmt::format("expected {} to be a number, got \"{}\"", name, value)});
      }
      if (!allowed || contains(*allowed, value)) continue;
      issues.push_back(
          {"", fmt::format("expected {} to be one of {}, got \"{}\"{}", name,
                           fmt::join(*allowed, ", "), value, did_you_mean(value, *allowed))});
    }
    for (const auto& [earlier, unused] : wanted_) {
      if (earlier != name) continue;
      issues.push_back({"", fmt::format("{0} appears twice; write {0}=VALUE|VALUE", name)});
    }
    wanted_.emplace_back(name, values);
  }
  if (!issues.empty()) throw ConfigError("--filter", std::move(issues));
}

bool CaseFilter::keeps(const Case& c) const {
  return std::all_of(wanted_.begin(), wanted_.end(), [&](const auto& want) {
    return contains(want.second, axis(want.first).text(c));
  });
}

}  // namespace flashbench
