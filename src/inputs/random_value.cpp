#include "inputs/random_value.h"

#include <cmath>
#include <numbers>

#include "inputs/split_mix.h"

namespace flashbench {

namespace {

constexpr double kOutlierProbability = 0.001;
constexpr double kOutlierDeviation = 10.0;

// Box-Muller transform of the two halves of `bits`.
double normal(uint64_t bits) {
  const double u1 = (static_cast<double>(bits >> 32) + 1.0) * 0x1p-32;  // (0, 1]
  const double u2 = static_cast<double>(bits & 0xffffffff) * 0x1p-32;   // [0, 1)
  return std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
}

// [0, 1)
double unit(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

float random_value(Distribution distribution, uint64_t seed, int tensor, uint64_t index) {
  const auto stream = static_cast<uint64_t>(tensor);
  const uint64_t bits = random_bits(seed, stream, index);
  switch (distribution) {
    case Distribution::uniform:
      return static_cast<float>(2.0 * unit(bits) - 1.0);
    case Distribution::outliers: {
      double value = normal(bits);
      if (unit(random_bits(seed, stream + 4, index)) < kOutlierProbability) {
        value += kOutlierDeviation * normal(random_bits(seed, stream + 8, index));
      }
      return static_cast<float>(value);
    }
    default:
      break;
  }
  return static_cast<float>(normal(bits));
}

}  // namespace flashbench
