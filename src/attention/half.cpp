#include "attention/half.h"

#include <bit>
#include <cmath>
#include <stdexcept>

#include "attention/e4m3.h"

namespace flashbench {

float fp16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in fp32
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide_exponent = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (mantissa << 13));
}

uint16_t float_to_fp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65520: infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: the fp32 adder rounds to multiples of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) & 0x7fffu));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude - ((127u - 15u) << 23) + 0xfffu + odd;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float load_element(const void* data, Dtype dtype, int64_t index) {
  switch (dtype) {
    case Dtype::fp32:
      return static_cast<const float*>(data)[index];
    case Dtype::fp16:
      return fp16_to_float(static_cast<const uint16_t*>(data)[index]);
    case Dtype::bf16:
      return bf16_to_float(static_cast<const uint16_t*>(data)[index]);
    case Dtype::e4m3:
      return e4m3_to_float(static_cast<const uint8_t*>(data)[index]);
  }
  throw std::logic_error("no such dtype");
}

void store_element(void* data, Dtype dtype, int64_t index, float value) {
  switch (dtype) {
    case Dtype::fp32:
      static_cast<float*>(data)[index] = value;
      return;
    case Dtype::fp16:
      static_cast<uint16_t*>(data)[index] = float_to_fp16(value);
      return;
    case Dtype::bf16:
      static_cast<uint16_t*>(data)[index] = float_to_bf16(value);
      return;
    case Dtype::e4m3:
      static_cast<uint8_t*>(data)[index] = float_to_e4m3(value);
      return;
  }
  throw std::logic_error("no such dtype");
}

float round_to(Dtype dtype, float value) {
  switch (dtype) {
    case Dtype::fp32:
      return value;
    case Dtype::fp16:
      return fp16_to_float(float_to_fp16(value));
    case Dtype::bf16:
      return bf16_to_float(float_to_bf16(value));
    case Dtype::e4m3:
      return e4m3_to_float(float_to_e4m3(value));
  }
  return value;
}

}  // namespace flashbench
