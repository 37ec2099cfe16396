// A JSON value that converts to what is asked for or says where it is and what it was: no number
// out of range, no text for a number, no missing member. The library's own conversions would round,
// wrap or accept.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention/enum_names.h"
#include "plan/json_text.h"

namespace flashbench {

class StrictJson {
 public:
  using Json = nlohmann::ordered_json;

  // `json` must outlive it. `pointer` is where it is, for messages. Every member throws
  // std::invalid_argument.
  explicit StrictJson(const Json& json, std::string pointer = "")
      : json_(json), pointer_(std::move(pointer)) {}

  const Json& json() const { return json_; }
  bool is_null() const { return json_.is_null(); }

  bool contains(const char* key) const {
    if (!json_.is_object()) fail("an object");
    return json_.contains(key);
  }
  StrictJson at(const char* key) const {
    if (!contains(key)) throw std::invalid_argument(pointer_child(pointer_, key) + ": missing");
    return StrictJson(json_.at(key), pointer_child(pointer_, key));
  }

  std::vector<StrictJson> elements() const {
    if (!json_.is_array()) fail("a list");
    std::vector<StrictJson> elements;
    for (const Json& element : json_) {
      elements.emplace_back(element, pointer_child(pointer_, std::to_string(elements.size())));
    }
    return elements;
  }

  // NaN and infinity are written as null.
  double number_or_nan() const {
    return is_null() ? std::numeric_limits<double>::quiet_NaN() : double{*this};
  }

  template <typename T>
  requires std::same_as<T, bool> || std::same_as<T, double> || std::same_as<T, std::string> ||
      std::same_as<T, int> || std::same_as<T, int64_t> || std::same_as<T, uint64_t>
  operator T() const {
    if constexpr (std::same_as<T, bool>) {
      if (!json_.is_boolean()) fail("true or false");
      return json_.get<bool>();
    } else if constexpr (std::same_as<T, double>) {
      if (!json_.is_number()) fail("a number");
      return json_.get<double>();
    } else if constexpr (std::same_as<T, std::string>) {
      if (!json_.is_string()) fail("text");
      return json_.get<std::string>();
    } else {
      return integer<T>();
    }
  }

  template <typename T>
  operator std::vector<T>() const {
    if (!json_.is_array()) fail("a list");
    std::vector<T> values;
    values.reserve(json_.size());
    for (const Json& element : json_) values.push_back(StrictJson(element, pointer_));
    return values;
  }

  template <typename T, size_t n>
  operator std::array<T, n>() const {
    if (!json_.is_array() || json_.size() != n) fail(fmt::format("a list of {}", n));
    std::array<T, n> values{};
    for (size_t i = 0; i < n; ++i) values[i] = StrictJson(json_[i], pointer_);
    return values;
  }

  [[noreturn]] void fail(const std::string& expected) const {
    throw std::invalid_argument(
        fmt::format("{}: expected {}, found {}", pointer_, expected, shown(json_)));
  }

 private:
  template <typename T>
  T integer() const {
    // The library keeps integers of 0 and more as unsigned.
    if (json_.is_number_unsigned() && std::in_range<T>(json_.get<uint64_t>())) {
      return static_cast<T>(json_.get<uint64_t>());
    }
    if (json_.type() == Json::value_t::number_integer && std::in_range<T>(json_.get<int64_t>())) {
      return static_cast<T>(json_.get<int64_t>());
    }
    fail(std::is_unsigned_v<T> ? "an integer of at least 0" : "an integer");
  }

  const Json& json_;
  std::string pointer_;
};

// The value with this name among `values`. Throws std::invalid_argument, naming the text.
template <typename Enum, size_t N>
Enum named(const StrictJson& json, const std::array<Enum, N>& values) {
  const std::string text = json;
  const auto value = parse<Enum>(text);
  if (value && std::ranges::find(values, *value) != values.end()) return *value;
  throw std::invalid_argument(fmt::format("unknown name \"{}\"", text));
}

// The same among all values.
template <typename Enum>
Enum named(const StrictJson& json) {
  constexpr auto kValues = values_of<Enum>();
  return named(json, kValues);
}

}  // namespace flashbench
