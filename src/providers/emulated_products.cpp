#include "providers/emulated_products.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "attention/accumulator.h"

namespace flashbench {

namespace {

constexpr size_t kColumns = 16;  // at once
constexpr uint32_t kInfinity = 0x7f800000;
constexpr int kMantissaBits = 23;

uint32_t magnitude_bits(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffff;
}

// 2^exponent of a normal number.
float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << kMantissaBits);
}

// Towards zero.
float cut_off(float value) {
  constexpr uint32_t kDropped = (1u << (kMantissaBits - Accumulator::kFractionBits)) - 1;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & ~kDropped);
}

// Of `width` columns. kColumns of them are inlined with a width that the compiler knows.
inline void add_columns(float* sum, const float* weights, const float* rows, int64_t products,
                        int64_t stride, size_t width) {
  std::array<uint32_t, kColumns> largest{};
  for (size_t i = 0; i < width; ++i) largest[i] = magnitude_bits(sum[i]);
  for (int64_t k = 0; k < products; ++k) {
    const float* row = rows + k * stride;
    for (size_t i = 0; i < width; ++i) {
      largest[i] = std::max(largest[i], magnitude_bits(weights[k] * row[i]));
    }
  }
  // Units of the last bit that is kept; what is all but 0 has some that is normal.
  std::array<float, kColumns> units_in_one{};
  std::array<int32_t, kColumns> units{};
  for (size_t i = 0; i < width; ++i) {
    const int exponent = std::clamp(static_cast<int>(largest[i] >> kMantissaBits) - 127, -100, 127);
    units_in_one[i] = power_of_two(Accumulator::kFractionBits - exponent);
  }
  const bool finite =
      std::all_of(largest.begin(), largest.end(), [](uint32_t bits) { return bits < kInfinity; });
  if (!finite) return add_exact(sum, weights, rows, products, stride, static_cast<int64_t>(width));
  for (size_t i = 0; i < width; ++i) units[i] = static_cast<int32_t>(sum[i] * units_in_one[i]);
  for (int64_t k = 0; k < products; ++k) {
    const float* row = rows + k * stride;
    for (size_t i = 0; i < width; ++i) {
      units[i] += static_cast<int32_t>(weights[k] * row[i] * units_in_one[i]);
    }
  }
  for (size_t i = 0; i < width; ++i) {
    sum[i] = cut_off(static_cast<float>(units[i]) / units_in_one[i]);
  }
}

}  // namespace

void add_truncated(float* sum, const float* weights, const float* rows, int64_t products,
                   int64_t stride, int64_t count) {
  const auto columns = static_cast<size_t>(count);
  for (size_t first = 0; first < columns; first += kColumns) {
    if (columns - first >= kColumns) {
      add_columns(sum + first, weights, rows + first, products, stride, kColumns);
    } else {
      add_columns(sum + first, weights, rows + first, products, stride, columns - first);
    }
  }
}

void add_exact(float* sum, const float* weights, const float* rows, int64_t products,
               int64_t stride, int64_t count) {
  for (int64_t k = 0; k < products; ++k) {
    const float* row = rows + k * stride;
    for (int64_t i = 0; i < count; ++i) sum[i] += weights[k] * row[i];
  }
}

}  // namespace flashbench
