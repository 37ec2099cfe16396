#include "attention/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace flashbench {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Half, EveryFp16ValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = fp16_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(value)))) << bits;
    } else {
      EXPECT_EQ(float_to_fp16(value), bits);
    }
  }
}

TEST(Half, EveryBf16ValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value)))) << bits;
    } else {
      EXPECT_EQ(float_to_bf16(value), bits);
    }
  }
}

// Rounds to the nearest neighbour, and half-way values to the one with an even last bit.
template <typename ToFloat, typename FromFloat>
void expect_nearest_even(ToFloat to_float, FromFloat from_float, uint16_t last_finite) {
  for (uint16_t bits = 0; bits < last_finite; ++bits) {
    const float low = to_float(bits), high = to_float(static_cast<uint16_t>(bits + 1));
    const float middle = static_cast<float>((static_cast<double>(low) + high) / 2);
    const auto even = static_cast<uint16_t>(bits + (bits & 1));
    ASSERT_EQ(from_float(middle), even) << bits;
    ASSERT_EQ(from_float(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(from_float(std::nextafter(middle, kInfinity)), bits + 1);
  }
}

TEST(Half, RoundsToNearestEven) {
  expect_nearest_even(fp16_to_float, float_to_fp16, 0x7bff);
  expect_nearest_even(bf16_to_float, float_to_bf16, 0x7f7f);
}

TEST(Half, Limits) {
  EXPECT_EQ(fp16_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(round_to(Dtype::fp16, 65519.0f), 65504.0f);
  EXPECT_EQ(round_to(Dtype::fp16, 65520.0f), kInfinity);
  EXPECT_EQ(round_to(Dtype::fp16, -1e6f), -kInfinity);
  EXPECT_EQ(round_to(Dtype::bf16, std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(round_to(Dtype::fp32, 1.1f), 1.1f);
  EXPECT_EQ(round_to(Dtype::fp16, -0x1p-24f), -0x1p-24f);
  EXPECT_TRUE(std::signbit(round_to(Dtype::fp16, -0x1p-30f)));
}

TEST(Half, ElementsByIndex) {
  uint16_t halves[2] = {};
  store_element(halves, Dtype::bf16, 1, 1.0f);
  EXPECT_EQ(halves[0], 0);
  EXPECT_EQ(halves[1], 0x3f80);
  EXPECT_EQ(load_element(halves, Dtype::bf16, 1), 1.0f);
  float singles[2] = {};
  store_element(singles, Dtype::fp32, 1, 2.5f);
  EXPECT_EQ(load_element(singles, Dtype::fp32, 1), 2.5f);
}

}  // namespace
}  // namespace flashbench
