// A number of things in words.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace flashbench {

// "1 case", "2 cases".
inline std::string count_of(size_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace flashbench
