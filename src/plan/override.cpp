#include "plan/override.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/json_text.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

ConfigError bad_override(std::string_view text, std::string_view problem) {
  return ConfigError("--set", {{"", fmt::format("{}, got {}", problem, shown(Json(text)))}});
}

// The index that a pointer's token names in an array of `size` items; one past the end appends.
std::optional<size_t> array_index(const std::string& token, size_t size) {
  if (token == "-") return size;
  const bool digits =
      !token.empty() && token.size() <= 9 &&
      std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || (token.size() > 1 && token[0] == '0')) return std::nullopt;
  const size_t index = std::stoul(token);
  return index <= size ? std::optional(index) : std::nullopt;
}

}  // namespace

Override parse_override(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) throw bad_override(text, "expected /pointer=value");
  Override result;
  result.pointer = text.substr(0, equals);
  const auto tokens = pointer_tokens(result.pointer);
  if (!tokens) {
    throw bad_override(text, "expected a JSON pointer before '=', like /measure/max_seconds");
  }
  if (tokens->size() > kMaxJsonDepth) {
    throw bad_override(text, fmt::format("expected a pointer of at most {} parts", kMaxJsonDepth));
  }

  const std::string_view value = text.substr(equals + 1);
  JsonText parsed = parse_json(value);
  if (parsed.value && parsed.issues.empty()) {
    result.value = std::move(*parsed.value);
  } else if (!value.empty() && std::string_view("{[\"").find(value[0]) != std::string_view::npos) {
    throw ConfigError(fmt::format("--set {}", result.pointer), std::move(parsed.issues));
  } else {
    result.value = value;  // bare text
  }
  return result;
}

std::optional<ConfigIssue> apply_override(Json& document, const Override& override) {
  const auto tokens = pointer_tokens(override.pointer);
  if (!tokens) return ConfigIssue{override.pointer, "--set: not a JSON pointer"};
  Json* node = &document;
  std::string pointer;
  for (const std::string& token : *tokens) {
    if (node->is_null()) *node = Json::object();  // made on the way here
    if (node->is_object()) {
      node = &(*node)[token];
    } else if (node->is_array()) {
      const std::optional<size_t> index = array_index(token, node->size());
      if (!index) {
        return ConfigIssue{
            pointer_child(pointer, token),
            fmt::format("--set: expected an index from 0 to {}, or - to append", node->size())};
      }
      if (*index == node->size()) node->push_back(nullptr);
      node = &(*node)[*index];
    } else {
      return ConfigIssue{pointer, fmt::format("--set: {} holds no \"{}\"; only objects and arrays "
                                              "hold values",
                                              shown(*node), token)};
    }
    pointer = pointer_child(pointer, token);
  }
  *node = override.value;
  return std::nullopt;
}

}  // namespace flashbench
