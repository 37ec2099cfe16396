// SplitMix64 (Steele, Lea and Flood 2014): random bits from an integer.
#pragma once

#include <cstdint>

namespace flashbench {

// The increment of its state: 2^64 / golden ratio.
inline constexpr uint64_t kSplitMixIncrement = 0x9e3779b97f4a7c15;

// Its finaliser. On a GPU: device/split_mix.cuh.
constexpr uint64_t split_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace flashbench
