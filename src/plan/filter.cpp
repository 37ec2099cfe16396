// --filter: which cases to keep.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "plan/config.h"
#include "plan/nearest.h"

namespace flashbench {

namespace {

constexpr std::string_view kBothLengths = "seq";  // as in a config: q_len and kv_len at once

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

std::vector<std::string> known_axes() {
  std::vector<std::string> names;
  for (const auto& [axis, value] : axes(Case{})) names.push_back(axis);
  names.emplace_back(kBothLengths);
  return names;
}

template <typename Enum, size_t N>
std::vector<std::string> names_of(const std::array<Enum, N>& values) {
  std::vector<std::string> names;
  for (const Enum value : values) names.emplace_back(name(value));
  return names;
}

// The values of an axis that has only a few; empty for numbers.
std::vector<std::string> known_values(std::string_view axis) {
  if (axis == "pass") return names_of(kPasses);
  if (axis == "dtype") return names_of(kDtypes);
  if (axis == "mask") return names_of(kMasks);
  if (axis == "layout") return names_of(kLayouts);
  if (axis == "distribution") return names_of(kDistributions);
  if (axis == "placement") return names_of(kPlacements);
  return {};
}

// Whether the text could be a value of an axis of numbers.
bool is_number(std::string_view axis, std::string_view text) {
  if (axis == "scale" && text == "default") return true;
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
  const std::vector<std::string> known = known_axes();
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
    const std::string axis = term.substr(0, equals);
    const std::vector<std::string> values = split(term.substr(equals + 1), '|');
    if (!contains(known, axis)) {
      const std::string meant = did_you_mean(axis, known);
      issues.push_back({"", fmt::format("expected an axis ({}), got \"{}\"{}",
                                        fmt::join(known, ", "), axis, meant)});
      continue;
    }
    const std::vector<std::string> allowed = known_values(axis);
    for (const std::string& value : values) {
      if (allowed.empty() && !is_number(axis, value)) {
        issues.push_back({"", fmt::format("expected {} to be a number, got \"{}\"", axis, value)});
      }
      if (allowed.empty() || contains(allowed, value)) continue;
      issues.push_back(
          {"", fmt::format("expected {} to be one of {}, got \"{}\"{}", axis,
                           fmt::join(allowed, ", "), value, did_you_mean(value, allowed))});
    }
    for (const auto& [earlier, unused] : wanted_) {
      if (earlier != axis) continue;
      issues.push_back({"", fmt::format("{0} appears twice; write {0}=VALUE|VALUE", axis)});
    }
    wanted_.emplace_back(axis, values);
  }
  if (!issues.empty()) throw ConfigError("--filter", std::move(issues));
}

bool CaseFilter::keeps(const Case& c) const {
  std::vector<std::pair<std::string, std::string>> actual = axes(c);
  if (c.problem.q_len == c.problem.kv_len) {
    actual.emplace_back(kBothLengths, fmt::format("{}", c.problem.q_len));
  }
  return std::all_of(wanted_.begin(), wanted_.end(), [&](const auto& want) {
    return std::any_of(actual.begin(), actual.end(), [&](const auto& axis) {
      return axis.first == want.first && contains(want.second, axis.second);
    });
  });
}

}  // namespace flashbench
