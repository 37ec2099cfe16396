#include "attention/enum_names.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <stdexcept>

namespace flashbench {
namespace {

enum class Color { red, green, blue };

}  // namespace

template <>
inline constexpr auto kNames<Color> =
    names_of<Color>({{Color::red, "Red"}, {Color::green, "Green"}, {Color::blue, "Blue"}});

namespace {

// What a table without the row of a value, or an added value without a row, is refused by.
static_assert(is_value<Color::blue>() && !is_value<static_cast<Color>(3)>());

TEST(EnumNames, OneTableServesBothDirections) {
  EXPECT_EQ(name(Color::blue), "Blue");
  EXPECT_EQ(parse<Color>("Green"), Color::green);
  EXPECT_EQ(values_of<Color>(), (std::array{Color::red, Color::green, Color::blue}));
}

TEST(EnumNames, OtherTextIsNoValue) {
  EXPECT_EQ(parse<Color>("green"), std::nullopt);
  EXPECT_EQ(parse<Color>(""), std::nullopt);
}

TEST(EnumNames, OtherNumbersHaveNoName) {
  EXPECT_THROW(name(static_cast<Color>(3)), std::out_of_range);
}

}  // namespace
}  // namespace flashbench
