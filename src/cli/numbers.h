// Checks of the values that options take.
#pragma once

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <string>
#include <type_traits>

namespace flashbench {

// For Option::transform: accepts only decimal numbers from `least` to `most`, not NaN or infinity.
template <typename Number>
CLI::Validator from_to(Number least, Number most) {
  const std::string range = fmt::format("from {} to {}", least, most);
  const auto check = [=](std::string& text) {
    Number value{};
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stopped == end && value >= least && value <= most) {
      text = fmt::format("{}", value);  // the library would read "010" as octal
      return std::string();
    }
    return fmt::format("expected {} {}, got \"{}\"",
                       std::is_integral_v<Number> ? "an integer" : "a number", range, text);
  };
  return CLI::Validator(check, range);
}

}  // namespace flashbench
