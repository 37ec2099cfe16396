#include "plan/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownBytes = 60;
constexpr size_t kMessageBytes = 300;

// Cuts UTF-8 between characters.
std::string shortened(std::string text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  text.resize(bytes);
  return text + "...";
}

// Receives the parser's events and builds the document; stops (returns false) at the first thing
// that makes the rest meaningless.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  JsonText result(bool complete) {
    JsonText result;
    if (complete) result.value = std::move(root_);
    result.issues = std::move(issues_);
    return result;
  }

  bool null() override { return place(nullptr); }
  bool boolean(bool value) override { return place(value); }
  bool number_integer(number_integer_t value) override { return place(value); }
  bool number_unsigned(number_unsigned_t value) override { return place(value); }
  bool number_float(number_float_t value, const string_t&) override { return place(value); }
  bool string(string_t& value) override {
    if (value.size() <= limits_.text) return place(std::move(value));
    return stop(here(), fmt::format("expected text of at most {} bytes, got {}", limits_.text,
                                    value.size()));
  }
  bool binary(binary_t&) override { return false; }  // never in text

  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    if (key.size() > limits_.text) {
      return stop("", fmt::format("expected keys of at most {} bytes, got one of {}", limits_.text,
                                  key.size()));
    }
    Level& level = levels_.back();
    level.key = key;
    auto& object = level.value->get_ref<Json::object_t&>();
    const bool is_new = level.keys.try_emplace(key, object.size()).second;
    if (is_new) {
      object.emplace_back(key, nullptr);  // operator[] would search all earlier keys
    } else {
      add_issue(here(), "the key appears twice");
    }
    return true;
  }

  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) {
      return stop(here(), fmt::format("expected a number within the range of fp64, got {}", token));
    }
    std::string message = error.what();
    constexpr std::string_view kBeforePlace = "parse error at ";
    if (const size_t at = message.find(kBeforePlace); at != std::string::npos) {
      message.erase(0, at + kBeforePlace.size());
    }
    return stop("", "not JSON: " + shortened(std::move(message), kMessageBytes) + hint(position));
  }

 private:
  // An object or array that is still open.
  struct Level {
    Json* value;
    std::string key;                     // of the member being read
    std::map<std::string, size_t> keys;  // where each member is
  };

  // The value being read.
  Json& slot() {
    if (levels_.empty()) return root_;
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(nullptr);
      return level.value->back();
    }
    auto& object = level.value->get_ref<Json::object_t&>();
    return (object.begin() + static_cast<std::ptrdiff_t>(level.keys.at(level.key)))->second;
  }

  bool place(Json value) {
    slot() = std::move(value);
    return true;
  }

  bool open(Json value) {
    if (levels_.size() == limits_.depth) {
      return stop(here(), fmt::format("nested deeper than {} levels", limits_.depth));
    }
    Json& opened = slot();
    opened = std::move(value);
    levels_.push_back({&opened, {}, {}});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  // Where the value being read is.
  std::string here() const {
    std::string pointer;
    for (const Level& level : levels_) {
      const bool innermost = &level == &levels_.back();
      const bool array = level.value->is_array();
      const size_t index = array ? level.value->size() - (innermost ? 0 : 1) : 0;
      pointer = pointer_child(pointer, array ? std::to_string(index) : level.key);
    }
    return pointer;
  }

  // What the usual slips come from: a comma before a closing bracket, a comment. `position` counts
  // the bytes read up to and with the one that does not fit.
  std::string hint(size_t position) const {
    const std::string_view read = text_.substr(0, position);
    if (read.ends_with('/')) return "; JSON has no comments";
    if (!read.ends_with('}') && !read.ends_with(']')) return "";
    const size_t before = read.substr(0, read.size() - 1).find_last_not_of(" \t\r\n");
    if (before == std::string_view::npos || read[before] != ',') return "";
    return fmt::format("; a comma must not precede '{}'", read.back());
  }

  void add_issue(std::string pointer, std::string message) {
    issues_.push_back({std::move(pointer), std::move(message)});
  }
  bool stop(std::string pointer, std::string message) {
    add_issue(std::move(pointer), std::move(message));
    return false;
  }

  std::string_view text_;
  JsonLimits limits_;
  Json root_;
  std::vector<Level> levels_;
  std::vector<ConfigIssue> issues_;
};

// How many bytes of UTF-8 the control character has that a text begins with; 0 if it is none. The
// last two are line ends and what overrides the direction of text.
size_t control_bytes(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto is_within = [](unsigned value, unsigned first, unsigned last) {
    return value >= first && value <= last;
  };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  if (byte(0) == 0xc2 && is_within(byte(1), 0x80, 0x9f)) return 2;  // U+0080 to U+009F
  if (byte(0) != 0xe2) return 0;
  if (byte(1) == 0x80 && is_within(byte(2), 0xa8, 0xae)) return 3;  // U+2028 to U+202E
  if (byte(1) == 0x81 && is_within(byte(2), 0xa6, 0xa9)) return 3;  // U+2066 to U+2069
  return 0;
}

void make_printable(Json& json, bool lines);

// Of members whose names become the same, the first remains.
void make_members_printable(Json::object_t& members) {
  Json::object_t result;
  std::set<std::string> names;
  for (auto& [name, value] : members) {
    make_printable(value, name == "reason" || name == "description");
    std::string shown_name = printable(name);
    if (!names.insert(shown_name).second) continue;
    result.push_back({std::move(shown_name), std::move(value)});
  }
  members = std::move(result);
}

void make_printable(Json& json, bool lines) {
  if (json.is_string()) {
    json = printable(json.get_ref<const std::string&>(), lines);
  } else if (json.is_array()) {
    for (Json& element : json) make_printable(element, lines);
  } else if (json.is_object()) {
    make_members_printable(json.get_ref<Json::object_t&>());
  }
}

}  // namespace

JsonText parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return {std::nullopt, {{"", fmt::format("larger than {} bytes", limits.bytes)}}};
  }
  // To the parser it is the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    const auto line = 1 + std::ranges::count(text.substr(0, nul), '\n');
    return {std::nullopt, {{"", fmt::format("line {}: expected text, found a NUL byte", line)}}};
  }
  Builder builder(text, limits);
  const bool complete = Json::sax_parse(text, &builder);
  return builder.result(complete);
}

Json parse_json_option(std::string_view text) {
  JsonText parsed = parse_json(text);
  if (!parsed.issues.empty()) throw std::invalid_argument(parsed.issues.front().message);
  return std::move(*parsed.value);
}

std::string printable(const std::string& text, bool lines) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = control_bytes(std::string_view(text).substr(i));
    const bool kept = bytes == 0 || (lines && (text[i] == '\n' || text[i] == '\t'));
    result += kept ? text[i] : '?';
    i += kept ? 1 : bytes;
  }
  return result;
}

Json printable_texts(Json document) {
  make_printable(document, false);
  return document;
}

std::string shown(const Json& value) {
  return shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace), kShownBytes);
}

std::optional<std::vector<std::string>> pointer_tokens(std::string_view pointer) {
  if (!pointer.starts_with('/')) return std::nullopt;
  std::vector<std::string> tokens;
  for (size_t i = 0; i < pointer.size(); ++i) {
    if (pointer[i] == '/') {
      tokens.emplace_back();
    } else if (pointer[i] == '~') {
      const char code = i + 1 < pointer.size() ? pointer[++i] : '\0';
      if (code != '0' && code != '1') return std::nullopt;
      tokens.back() += code == '0' ? '~' : '/';
    } else {
      tokens.back() += pointer[i];
    }
  }
  return tokens;
}

std::string pointer_child(const std::string& pointer, std::string_view token) {
  std::string child = pointer + '/';
  for (const char c : token) {
    if (c == '~') {
      child += "~0";
    } else if (c == '/') {
      child += "~1";
    } else {
      child += c;
    }
  }
  return child;
}

}  // namespace flashbench
