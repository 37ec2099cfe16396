// JSON text read strictly: no duplicate keys, no numbers that overflow, and bounds on size, nesting
// and text length, so that no file can exhaust the stack of what reads it later.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/config.h"

namespace flashbench {

// What people write: a config, a --set.
inline constexpr size_t kMaxJsonBytes = size_t{1} << 20;
inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonText = 2000;  // bytes of one string or key

struct JsonLimits {
  size_t bytes = kMaxJsonBytes, depth = kMaxJsonDepth, text = kMaxJsonText;
};

struct JsonText {
  std::optional<nlohmann::ordered_json> value;  // empty if reading stopped at an error
  std::vector<ConfigIssue> issues;
};
JsonText parse_json(std::string_view text, const JsonLimits& limits = {});

// A value that an option of the command line gives. Throws std::invalid_argument.
nlohmann::ordered_json parse_json_option(std::string_view text);

// A value as compact JSON for a message, cut to a few dozen characters.
std::string shown(const nlohmann::ordered_json& value);

// UTF-8 of a file for a terminal, which control characters could change, or in which they could
// reorder what is shown: each becomes a question mark, but for line breaks and tabs if there may be
// several `lines`.
std::string printable(const std::string& text, bool lines = false);

// A document with all of its texts made printable, names of members too. Several lines have only
// sentences: the members "reason" and "description".
nlohmann::ordered_json printable_texts(nlohmann::ordered_json document);

// JSON pointers (RFC 6901). The tokens of one that starts with '/'; empty for any other text and
// for bad escapes. And one token more.
std::optional<std::vector<std::string>> pointer_tokens(std::string_view pointer);
std::string pointer_child(const std::string& pointer, std::string_view token);

}  // namespace flashbench
