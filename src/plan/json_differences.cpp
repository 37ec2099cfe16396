#include "plan/json_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostDifferences = 20;

std::string value_at(const Json& flat, const std::string& pointer) {
  return flat.contains(pointer) ? flat.at(pointer).dump() : "nothing";
}

}  // namespace

std::vector<JsonDifference> json_differences(const Json& first, const Json& second) {
  const Json flat_first = first.flatten(), flat_second = second.flatten();
  std::vector<JsonDifference> found;
  const auto look = [&](const std::string& pointer) {
    JsonDifference difference{pointer, value_at(flat_first, pointer),
                              value_at(flat_second, pointer)};
    if (difference.first != difference.second) found.push_back(std::move(difference));
  };
  for (const auto& [pointer, unused] : flat_second.items()) look(pointer);
  for (const auto& [pointer, unused] : flat_first.items()) {
    if (!flat_second.contains(pointer)) look(pointer);
  }
  return found;
}

std::string listed(const std::vector<JsonDifference>& differences, std::string_view second) {
  std::string text;
  for (size_t i = 0; i < std::min(differences.size(), kMostDifferences); ++i) {
    const JsonDifference& one = differences[i];
    text += fmt::format("\n  {}: {} there, {} {}", one.pointer, one.first, one.second, second);
  }
  if (differences.size() <= kMostDifferences) return text;
  return text + fmt::format("\n  and {} more", differences.size() - kMostDifferences);
}

}  // namespace flashbench
