// The names of an enum's values: one table for both directions.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace flashbench {

template <typename Enum>
struct EnumName {
  Enum value;
  std::string_view name;
};

// The table of an enum, made by names_of right after it.
template <typename Enum>
inline constexpr bool kNames = false;

// Whether an enum has this value: compilers write any other as "(Enum)3".
template <auto kValue>
consteval bool is_value() {
  constexpr std::string_view kText = __PRETTY_FUNCTION__, kBefore = "kValue = ";
  return kText[kText.find(kBefore) + kBefore.size()] != '(';
}

// Compiles only with a row for each value, in the enum's order.
template <typename Enum, size_t N>
consteval std::array<EnumName<Enum>, N> names_of(const EnumName<Enum> (&rows)[N]) {
  static_assert(!is_value<static_cast<Enum>(N)>(), "a value has no name");
  std::array<EnumName<Enum>, N> names{};
  for (size_t i = 0; i < N; ++i) {
    if (static_cast<size_t>(rows[i].value) != i) throw "not in the enum's order";
    names[i] = rows[i];
  }
  return names;
}

template <typename Enum>
consteval auto values_of() {
  std::array<Enum, kNames<Enum>.size()> values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = kNames<Enum>[i].value;
  return values;
}

// Throws std::out_of_range for a number that is no value.
template <typename Enum>
requires std::is_enum_v<Enum>
constexpr std::string_view name(Enum value) {
  return kNames<Enum>.at(static_cast<size_t>(value)).name;
}

// The value with this name; empty for any other text.
template <typename Enum>
constexpr std::optional<Enum> parse(std::string_view text) {
  for (const EnumName<Enum>& row : kNames<Enum>) {
    if (row.name == text) return row.value;
  }
  return std::nullopt;
}

}  // namespace flashbench
