#include "inputs/hadamard.h"

#include <array>
#include <bit>
#include <cstddef>

#include "inputs/split_mix.h"

namespace flashbench {

namespace {

constexpr size_t kPaley = 12;

// Paley's first construction over the 11 remainders: 1 where the difference is a square.
constexpr std::array<std::array<float, kPaley>, kPaley> kPaleyMatrix = [] {
  std::array<bool, 11> is_square{};
  for (size_t i = 1; i < 11; ++i) is_square[i * i % 11] = true;
  std::array<std::array<float, kPaley>, kPaley> h{};
  for (size_t i = 0; i < kPaley; ++i) {
    for (size_t j = 0; j < kPaley; ++j) {
      if (i == 0 || i == j) {
        h[i][j] = 1;
      } else if (j == 0) {
        h[i][j] = -1;
      } else {
        h[i][j] = is_square[(i + 11 - j) % 11] ? 1 : -1;
      }
    }
  }
  return h;
}();

void rotate_twelfths(std::span<float> row) {
  const size_t part = row.size() / kPaley;
  for (size_t column = 0; column < part; ++column) {
    std::array<float, kPaley> from{};
    for (size_t i = 0; i < kPaley; ++i) from[i] = row[i * part + column];
    for (size_t i = 0; i < kPaley; ++i) {
      float sum = 0;
      for (size_t j = 0; j < kPaley; ++j) sum += kPaleyMatrix[i][j] * from[j];
      row[i * part + column] = sum;
    }
  }
}

void rotate_power_of_two(std::span<float> row) {
  for (size_t half = 1; half < row.size(); half *= 2) {
    for (size_t first = 0; first < row.size(); first += 2 * half) {
      for (size_t i = first; i < first + half; ++i) {
        const float a = row[i], b = row[i + half];
        row[i] = a + b;
        row[i + half] = a - b;
      }
    }
  }
}

}  // namespace

float hadamard_sign(int64_t column) {
  constexpr uint64_t kSeed = 1, kStream = 18;  // apart from the tensors' and the pages'
  return random_bits(kSeed, kStream, static_cast<uint64_t>(column)) >> 63 == 0 ? 1.0f : -1.0f;
}

void rotate(std::span<float> row) {
  for (size_t i = 0; i < row.size(); ++i) row[i] *= hadamard_sign(static_cast<int64_t>(i));
  if (std::has_single_bit(row.size())) return rotate_power_of_two(row);
  rotate_twelfths(row);
  const size_t part = row.size() / kPaley;
  for (size_t i = 0; i < kPaley; ++i) rotate_power_of_two(row.subspan(i * part, part));
}

}  // namespace flashbench
