// Where the backward pass adds up dQ in fp32: tiles of 16 x 8 values, as mma's accumulators have
// them, of 128 floats each. Within a tile the floats lie in the order in which a warp's additions
// fill whole sectors; all kernels of the pass go through these functions.
#pragma once

#include "kernels/ptx/red.h"
#include "kernels/ptx/target.h"

namespace flashbench::kernels::sm80 {

// Of value `i` of the four that a lane holds of a tile.
__device__ __forceinline__ int accumulator_index(int lane, int i) {
  return ptx::has_sm_90() ? lane * 4 + i : i * 32 + lane;
}

__device__ __forceinline__ void add_to_accumulator(float* tile, int lane, const float (&v)[4]) {
  if constexpr (ptx::has_sm_90()) {
    ptx::red_add_v4_f32(tile + accumulator_index(lane, 0), v);
  } else {
    for (int i = 0; i < 4; ++i) ptx::red_add_f32(tile + accumulator_index(lane, i), v[i]);
  }
}

__device__ __forceinline__ void load_accumulator(const float* tile, int lane, float (&v)[4]) {
  if constexpr (ptx::has_sm_90()) {
    const float4 x = *reinterpret_cast<const float4*>(tile + accumulator_index(lane, 0));
    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
  } else {
    for (int i = 0; i < 4; ++i) v[i] = tile[accumulator_index(lane, i)];
  }
}

}  // namespace flashbench::kernels::sm80
