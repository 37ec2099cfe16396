#include "attention/e4m3.h"

#include <array>
#include <bit>

namespace flashbench {

namespace {

constexpr uint32_t kExponentGap = 127 - 7;  // of the biases
constexpr uint32_t kNan = 0x7f;

constexpr float decode(uint32_t bits) {
  const uint32_t sign = (bits & 0x80u) << 24, magnitude = bits & 0x7fu;
  if (magnitude == kNan) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8) {  // zero and subnormals: multiples of 2^-9
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (kExponentGap << 23)));
}

constexpr std::array<float, 256> kValues = [] {
  std::array<float, 256> values{};
  for (uint32_t bits = 0; bits < 256; ++bits) values[bits] = decode(bits);
  return values;
}();

// value / 2^shift, to the nearest, half-way values to even.
constexpr uint32_t rounded_shift(uint32_t value, uint32_t shift) {
  const uint32_t odd = (value >> shift) & 1u, half = 1u << (shift - 1);
  return (value + half - 1 + odd) >> shift;
}

// Of a magnitude below 2^-6, in units of 2^-9; 8 is the smallest normal number.
constexpr uint32_t subnormal(uint32_t magnitude) {
  constexpr uint32_t kShiftOfOne = 127 + 14;  // the exponent whose last bit is worth 2^-9
  const uint32_t shift = kShiftOfOne - (magnitude >> 23);
  if (shift > 24) return 0;  // below 2^-10, half a unit
  return rounded_shift((magnitude & 0x7fffffu) | 0x800000u, shift);
}

}  // namespace

float e4m3_to_float(uint8_t bits) {
  return kValues[bits];
}

uint8_t float_to_e4m3(float value) {
  constexpr uint32_t kMost = std::bit_cast<uint32_t>(kMostE4m3);
  constexpr uint32_t kSmallestNormal = std::bit_cast<uint32_t>(0x1p-6f);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | kNan);
  if (magnitude >= kMost) return static_cast<uint8_t>(sign | 0x7eu);
  if (magnitude < kSmallestNormal) return static_cast<uint8_t>(sign | subnormal(magnitude));
  return static_cast<uint8_t>(sign | rounded_shift(magnitude - (kExponentGap << 23), 20));
}

}  // namespace flashbench
