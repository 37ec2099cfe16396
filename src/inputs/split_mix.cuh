// SplitMix64's finaliser on a GPU; see inputs/split_mix.h.
#pragma once

#include "inputs/split_mix.h"

namespace flashbench {

// Device code cannot call the host's constexpr function.
__device__ inline uint64_t cuda_split_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace flashbench
