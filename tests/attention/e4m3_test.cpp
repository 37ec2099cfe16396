#include "attention/e4m3.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <future>
#include <limits>
#include <optional>

#include "attention/half.h"

namespace flashbench {
namespace {

constexpr float kBeyondAll = std::numeric_limits<float>::infinity();

// The format by its definition.
double value_of(uint32_t bits) {
  const uint32_t exponent = (bits >> 3) & 15u, mantissa = bits & 7u;
  const double sign = (bits & 0x80u) != 0 ? -1 : 1;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, -9);
  return sign * std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10);
}

// The nearest finite e4m3 by search over all of them, the even one of two; NaN for NaN.
uint8_t nearest(float value) {
  const uint32_t sign = std::signbit(value) ? 0x80u : 0u;
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7f);
  uint32_t best = 0;
  double least = kBeyondAll;
  for (uint32_t bits = 0; bits < 0x7f; ++bits) {
    const double magnitude = std::min<double>(std::abs(value), kMostE4m3);
    const double distance = std::abs(value_of(bits) - magnitude);
    if (distance < least || (distance == least && bits % 2 == 0)) {
      best = bits;
      least = distance;
    }
  }
  return static_cast<uint8_t>(sign | best);
}

TEST(E4m3, DecodesByItsDefinition) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const float value = e4m3_to_float(static_cast<uint8_t>(bits));
    if ((bits & 0x7fu) == 0x7fu) {
      EXPECT_TRUE(std::isnan(value)) << bits;
    } else {
      EXPECT_EQ(value, value_of(bits)) << bits;
    }
    EXPECT_EQ(std::signbit(value), bits >= 0x80) << bits;
    EXPECT_EQ(float_to_e4m3(value), bits);
  }
}

TEST(E4m3, EncodesEveryBf16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_float(static_cast<uint16_t>(bits));
    ASSERT_EQ(float_to_e4m3(value), nearest(value)) << value;
  }
}

// The first float of this sign that goes elsewhere than the definition says: from one tie between
// neighbours to the next to the value between them, a tie to the even one, all beyond the last tie
// to 448, NaN to NaN. Every tie is a float.
std::optional<float> first_wrong(uint32_t sign) {
  constexpr uint32_t kMost = 0x7e, kInfinity = 0x7f800000u, kBehindNan = 0x80000000u;
  uint32_t magnitude = 0;
  for (uint32_t expected = 0; expected <= 0x7f; ++expected) {
    uint32_t end = expected == kMost ? kInfinity + 1 : kBehindNan;
    if (expected < kMost) {
      const auto tie = static_cast<float>((value_of(expected) + value_of(expected + 1)) / 2);
      end = std::bit_cast<uint32_t>(tie) + (expected % 2 == 0 ? 1 : 0);
    }
    for (; magnitude < end; ++magnitude) {
      const auto value = std::bit_cast<float>(sign << 31 | magnitude);
      if (float_to_e4m3(value) != (sign << 7 | expected)) return value;
    }
  }
  return std::nullopt;
}

// All 2^32 of them: some 7 s of processor time, half on each of two threads.
TEST(E4m3, EncodesEveryFloat) {
  auto of_negative = std::async(std::launch::async, first_wrong, 1);
  EXPECT_EQ(first_wrong(0), std::nullopt);
  EXPECT_EQ(of_negative.get(), std::nullopt);
}

TEST(E4m3, Limits) {
  EXPECT_EQ(float_to_e4m3(0.0f), 0x00);
  EXPECT_EQ(float_to_e4m3(-0.0f), 0x80);
  EXPECT_EQ(float_to_e4m3(0x1p-10f), 0x00);  // half of the smallest
  EXPECT_EQ(float_to_e4m3(std::nextafter(0x1p-10f, 1.0f)), 0x01);
  EXPECT_EQ(float_to_e4m3(0x1.ep-7f), 0x08);  // between the largest subnormal and 2^-6
  EXPECT_EQ(float_to_e4m3(std::numeric_limits<float>::denorm_min()), 0x00);
  for (const float beyond : {448.0f, 464.0f, 480.0f, 1e30f, kBeyondAll}) {
    EXPECT_EQ(float_to_e4m3(beyond), 0x7e) << beyond;
    EXPECT_EQ(float_to_e4m3(-beyond), 0xfe) << beyond;
  }
  EXPECT_EQ(float_to_e4m3(std::numeric_limits<float>::quiet_NaN()) & 0x7f, 0x7f);
}

}  // namespace
}  // namespace flashbench
