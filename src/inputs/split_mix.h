// SplitMix64 (Steele, Lea and Flood 2014): random bits from an integer.
#pragma once

#include <cstdint>

namespace flashbench {

// The increment of its state: 2^64 / golden ratio.
inline constexpr uint64_t kSplitMixIncrement = 0x9e3779b97f4a7c15;

// Its finaliser. On a GPU: inputs/split_mix.cuh.
constexpr uint64_t split_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// 64 random bits: element `index` of the stream identified by `seed` and `stream`.
constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  constexpr uint64_t kGamma = kSplitMixIncrement;
  const uint64_t start = split_mix(split_mix(seed + kGamma) + (stream + 1) * kGamma);
  return split_mix(start + (index + 1) * kGamma);
}

}  // namespace flashbench
