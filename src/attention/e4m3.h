// Conversions between fp32 and e4m3, on the bit patterns: sign, 4 bits of exponent with a bias of
// 7, 3 of mantissa; no infinities, and one NaN of each sign (OCP 8-bit Floating Point Specification
// 1.0).
#pragma once

#include <cstdint>

namespace flashbench {

inline constexpr float kMostE4m3 = 448;

float e4m3_to_float(uint8_t bits);

// To the nearest, half-way values to even, as PTX's cvt.rn.satfinite.e4m3x2.f32: what is beyond
// 448, an infinity too, becomes 448. NaN stays NaN.
uint8_t float_to_e4m3(float value);

}  // namespace flashbench
