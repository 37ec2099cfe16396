// The fp32 accumulators of dQ in global memory, and of dK and dV where thread blocks share keys.
// They consist of tiles of 16 x 8 values (an mma accumulator), 128 floats each. Within a tile the
// floats are ordered so that the additions of a warp fill whole sectors. All kernels of the
// backward pass access them through these functions.
//
// Where a kernel computes dQ^T, the tiles of dQ have 8 x 16 values instead, and 64 rows x 64
// columns follow each other: the transposed accumulators.
#pragma once

#include "kernels/ptx/red.h"
#include "kernels/ptx/target.h"

namespace flashbench::kernels::backward {

// The index within a tile of value `i` of the four values that a lane holds.
__device__ __forceinline__ int accumulator_index(int lane, int i) {
  return ptx::has_sm_90() ? lane * 4 + i : i * 32 + lane;
}

// The address of element (row, column) of a block whose tiles begin at `tiles`.
template <int kHeadDim>
__device__ __forceinline__ float* accumulator_of(float* tiles, int row, int column) {
  float* tile = tiles + (row / 16 * (kHeadDim / 8) + column / 8) * 128;
  const int lane = row % 8 * 4 + column % 8 / 2, value = row % 16 / 8 * 2 + column % 2;
  return tile + accumulator_index(lane, value);
}

__device__ __forceinline__ void add_to_accumulator(float* tile, int lane, const float (&v)[4]) {
  if constexpr (ptx::has_sm_90()) {
    ptx::red_add_v4_f32(tile + accumulator_index(lane, 0), v);
  } else {
    for (int i = 0; i < 4; ++i) ptx::red_add_f32(tile + accumulator_index(lane, i), v[i]);
  }
}

// The same to a tile of dK or dV, to which other GPUs may add, too (kernels::KeySums).
__device__ __forceinline__ void add_to_key_sums(float* tile, int lane, const float (&v)[4]) {
  if constexpr (ptx::has_sm_90()) {
    ptx::red_sys_add_v4_f32(tile + accumulator_index(lane, 0), v);
  } else {
    for (int i = 0; i < 4; ++i) ptx::red_sys_add_f32(tile + accumulator_index(lane, i), v[i]);
  }
}

// Stores to a tile that no other thread block adds to.
__device__ __forceinline__ void store_accumulator(float* tile, int lane, const float (&v)[4]) {
  if constexpr (ptx::has_sm_90()) {
    *reinterpret_cast<float4*>(tile + accumulator_index(lane, 0)) = {v[0], v[1], v[2], v[3]};
  } else {
    for (int i = 0; i < 4; ++i) tile[accumulator_index(lane, i)] = v[i];
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

// The index of a transposed tile in 64 rows of accumulators, by its row and column in tiles.
__host__ __device__ constexpr int transposed_tile(int row, int column) {
  return (column / 4 * 8 + row) * 4 + column % 4;
}

// The same as accumulator_of() for 64 rows of transposed accumulators.
__device__ __forceinline__ float* transposed_accumulator_of(float* tiles, int row, int column) {
  const int lane = column % 8 * 4 + row % 8 / 2, value = column % 16 / 8 * 2 + row % 2;
  return tiles + transposed_tile(row / 8, column / 16) * 128 + accumulator_index(lane, value);
}

// Transposes 8 x 8 values among the lanes. Lane l has row l / 4, columns l % 4 * 2 + {0, 1}.
__device__ __forceinline__ void transpose_accumulators(float& x0, float& x1) {
  const int lane = static_cast<int>(threadIdx.x) % 32, from = lane % 4 * 8 + lane / 8;
  const bool odd = lane / 4 % 2 != 0;
  const auto received = [&](int lane_from) {
    const float even_column = __shfl_sync(~0u, x0, lane_from);
    const float odd_column = __shfl_sync(~0u, x1, lane_from);
    return odd ? odd_column : even_column;
  };
  const float first = received(from), second = received(from + 4);
  x0 = first;
  x1 = second;
}

}  // namespace flashbench::kernels::backward
