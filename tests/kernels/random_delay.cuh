// Delays warpgroups at random before their waits and arrivals: the parameter Delay of the kernels
// for Hopper.
#pragma once

#include "device/cuda.h"

namespace flashbench::kernels::sm90 {

static __constant__ unsigned held_up;  // bit i: warpgroup i
static __constant__ unsigned delay_seed;

struct RandomDelay {
  static __device__ void before_barrier() {
    const unsigned warp = threadIdx.x / 32;
    if ((held_up >> warp / 4 & 1) == 0) return;
    // Lanes that run together read the same clock.
    unsigned x =
        (static_cast<unsigned>(clock()) + delay_seed + 97 * warp + blockIdx.x) * 0x9E3779B1;
    x ^= x >> 15;
    if (x % 4 == 0) __nanosleep(x >> 16 & 0x7FF);
  }
};

// Applies to the following kernels in the stream.
inline void hold_up(unsigned warpgroups, unsigned seed, cudaStream_t stream) {
  FLASHBENCH_CUDA(cudaMemcpyToSymbolAsync(held_up, &warpgroups, sizeof(warpgroups), 0,
                                          cudaMemcpyHostToDevice, stream));
  FLASHBENCH_CUDA(
      cudaMemcpyToSymbolAsync(delay_seed, &seed, sizeof(seed), 0, cudaMemcpyHostToDevice, stream));
}

}  // namespace flashbench::kernels::sm90
