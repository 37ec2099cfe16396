// How a part of dQ gets from registers to the accumulators in global memory, in the backward pass's
// main kernel for Hopper: added by the warp itself, or staged for the writers of the deterministic
// kernel (backward_dq_writers.cuh). Where K is not all finite, dQ of masked blocks is computed
// again key by key.
#pragma once

#include <cstdint>

#include "kernels/backward/accumulator.cuh"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/cp_reduce_async_bulk.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_finite.cuh"
#include "kernels/sm90/backward_products.cuh"
#include "kernels/sm90/backward_shapes.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, BackwardConfig kConfig, typename Delay>
struct BackwardDq : BackwardShapes<kConfig, Delay> {
  using Shapes = BackwardShapes<kConfig, Delay>;
  using Shapes::kHeadDim, Shapes::kBlockQ, Shapes::kBlockKv, Shapes::kDqWarpgroup,
      Shapes::kHasWriters, Shapes::kQPanelBytes, Shapes::kKvPanelBytes, Shapes::kDqRows,
      Shapes::kDqColumns, Shapes::kDqFloats, Shapes::kDqTiles, Shapes::kTileFloats, Shapes::kFlags,
      Shapes::kSumsColumns;
  using typename Shapes::Writers, typename Shapes::Work, typename Shapes::Shared,
      typename Shapes::Block;
  using Part = typename BackwardProducts<T, kConfig, Delay>::Part;

  // The accumulators of a warp's part of a block of dQ.
  static __device__ __forceinline__ float* accumulators(const BackwardArguments& a,
                                                        const Part& part, const Block& block) {
    return a.dq_sums + block.first_row * kSumsColumns +
           ((part.first_dq_row / kWarpRows + part.warp) * kSumsColumns + part.first_dq_column) / 8 *
               kTileFloats;
  }

  // Whether dQ has this column; the last consumer's columns may extend beyond its end.
  static __device__ __forceinline__ bool is_in_head(int column) {
    return kHeadDim % kDqColumns == 0 || column < kHeadDim;
  }

  // Adds tiles [kFirst, kEnd) of a warp's part of a block of dQ to the accumulators in global
  // memory. `dq` holds these alone.
  template <int kFirst, int kEnd>
  static __device__ __forceinline__ void add(float* tiles, const Part& part, const float* dq) {
#pragma unroll
    for (int j = kFirst; j < kEnd; ++j, dq += 4) {
      if (!is_in_head(part.first_dq_column + 8 * j)) break;
      const float v[4] = {dq[0], dq[1], dq[2], dq[3]};
      backward::add_to_accumulator(tiles + j * kTileFloats, part.lane, v);
    }
  }

  using SeenKeys = sm90::SeenKeys<Work, kBlockKv>;

  // Computes an element of dQ key by key, from dS and K (`keys`) in shared memory.
  static __device__ __forceinline__ float sum_seen_keys(const char* keys, const char* ds,
                                                        const SeenKeys& seen, int row, int column) {
    float sum = 0;
#pragma unroll 1
    for (int key = seen.first_of(row); key < seen.end_of(row); ++key) {
      sum += element<T>(ds, kQPanelBytes, row, key) *
             element<T>(keys, kKvPanelBytes, key, Shapes::stored_column(column));
    }
    return sum;
  }

  // Adds this part of dQ, computed by sum_seen_keys, to the accumulators in global memory.
  static __device__ __forceinline__ void add_seen_keys(const BackwardArguments& a, const char* keys,
                                                       const Work& work, const Part& part,
                                                       const Block& block, const char* ds) {
    const SeenKeys seen(a, work, block.first_query);
    float* tiles = a.dq_sums + block.first_row * kSumsColumns;
    // Without flags, each warp does so for its own rows.
    constexpr bool kAlone = kDqWarpgroup && !kFlags;
    constexpr int kWarpElements = kWarpRows * kDqColumns;
    const int first =
        kAlone ? part.warp * kWarpElements + part.lane : static_cast<int>(threadIdx.x) % 128;
    const int end = kAlone ? (part.warp + 1) * kWarpElements : kDqRows * kDqColumns;
#pragma unroll 1
    for (int i = first; i < end; i += kAlone ? 32 : 128) {
      const int row = part.first_dq_row + i / kDqColumns;
      const int column = part.first_dq_column + i % kDqColumns;
      if (!is_in_head(column)) continue;
      atomicAdd(backward::accumulator_of<kSumsColumns>(tiles, row, column),
                sum_seen_keys(keys, ds, seen, row, column));
    }
  }

  // Stages a warp's rows of all columns of dQ, from row part.first_dq_row on, computed by
  // sum_seen_keys.
  static __device__ __forceinline__ void stage_seen_keys(const BackwardArguments& a, float* tiles,
                                                         const char* keys, const Work& work,
                                                         const Part& part, const Block& block,
                                                         const char* ds) {
    const SeenKeys seen(a, work, block.first_query);
#pragma unroll 1
    for (int i = part.lane; i < kWarpRows * kHeadDim; i += 32) {
      const int row = i / kHeadDim, column = i % kHeadDim;
      *backward::accumulator_of<kHeadDim>(tiles, row, column) =
          sum_seen_keys(keys, ds, seen, part.first_dq_row + part.warp * kWarpRows + row, column);
    }
  }

  // Stages this consumer's part of dQ for the writers.
  static __device__ __forceinline__ void stage(Shared& shared, const Part& part, int step,
                                               const float (&dq)[kDqFloats]) {
    float* tiles = Writers::room_for(*shared.dq_writers, step) +
                   (part.warp * kHeadDim + part.first_dq_column) / 8 * kTileFloats +
                   backward::accumulator_index(part.lane, 0);
#pragma unroll
    for (int j = 0; j < kDqTiles; ++j) {
      if (!is_in_head(part.first_dq_column + 8 * j)) break;
      const float* v = dq + 4 * j;
      *reinterpret_cast<float4*>(tiles + j * kTileFloats) = {v[0], v[1], v[2], v[3]};
    }
  }

  // Stages it, computed by sum_seen_keys, for the writers.
  static __device__ __forceinline__ void stage_seen_keys(const BackwardArguments& a, Shared& shared,
                                                         const Work& work, const Part& part,
                                                         const Block& block, int step,
                                                         const char* ds) {
    const SeenKeys seen(a, work, block.first_query);
    float* const tiles = Writers::room_for(*shared.dq_writers, step);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % 128; i < kBlockQ * kDqColumns; i += 128) {
      const int row = i / kDqColumns, column = part.first_dq_column + i % kDqColumns;
      if (!is_in_head(column)) continue;
      *backward::accumulator_of<kHeadDim>(tiles, row, column) =
          sum_seen_keys(shared.k, ds, seen, row, column);
    }
  }

  // Hands it to the writers, where no fence and barrier have followed the staging.
  static __device__ __forceinline__ void hand_over(Shared& shared, const Part& part, int step) {
    ptx::fence_proxy_async();
    __syncwarp();
    Writers::hand_over(*shared.dq_writers, part.lane, step);
  }
};

}  // namespace flashbench::kernels::sm90
