// How a pair of thread blocks, a cluster, merges the two parts of a tile that they have
// (forward_parts.cu). Each merges half of the rows: the other sends it its part of them, to where
// Q, K and V were.
#pragma once

#include <cstdint>
#include <numbers>

#include "kernels/ptx/cluster.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/tid.h"
#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/forward_shapes.cuh"
#include "kernels/sm90/forward_softmax.cuh"
#include "kernels/sm90/forward_tiles.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, Config kConfig>
struct MergePair {
  using Tiles = ForwardTiles<kConfig>;
  using Tile = typename Tiles::Tile;
  using Shapes = ForwardShapes<kConfig>;
  using Shared = typename Shapes::Shared;
  using Rows = typename ForwardSoftmax<T, kConfig>::Rows;
  static constexpr int kHeadDim = kConfig.head_dim, kOFloats = Shapes::kOFloats;
  static constexpr int kWarps = 4 * Shapes::kConsumers, kRowsEach = kConfig.block_q / 2;

  // Floats from one row to the next in shared memory. Those of eight rows that a warp stores at
  // once lie in different banks.
  static constexpr int kRowFloats = kHeadDim + 8;

  // O of the rows that this thread block merges, divided by the sum of its part, and the
  // logsumexps.
  struct Parts {
    float o[2][kRowsEach][kRowFloats];
    float logsumexp[2][kRowsEach];
  };
  static_assert(sizeof(Parts) <= sizeof(Shared::q) + sizeof(Shared::k) + sizeof(Shared::v));

  // Merges the parts of a tile, and stores the result. Called by all consumers of both thread
  // blocks, when they have no product in flight.
  static __device__ __forceinline__ void merge(const Arguments& a, Shared& shared, const Tile& tile,
                                               const float (&o)[kOFloats], const Rows& rows) {
    // Read again, because registers have no room for what follows from it.
    const int thread = ptx::tid_x(), warp = thread / 32 - 4, lane = thread % 32;
    Parts& parts = reinterpret_cast<Parts&>(shared);
    await_both();  // both have read K and V
    send(parts, warp, lane, o, rows);
    await_both();  // all has arrived
    const int first_row = tile.first_query + ptx::cluster_ctarank() * kRowsEach;
    for (int row = warp; row < kRowsEach; row += kWarps) {
      if (Tiles::exists(a, tile, first_row + row)) {
        merge_row(a, tile, parts, row, first_row + row, lane);
      }
    }
  }

 private:
  // The producer's warps, which have nothing to do any more, count as arrived.
  static __device__ __forceinline__ void await_both() {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  }

  // Sends this warp's rows to the thread block that merges them.
  static __device__ __forceinline__ void send(Parts& parts, int warp, int lane,
                                              const float (&o)[kOFloats], const Rows& rows) {
    const int part = ptx::cluster_ctarank(), to = warp / (kWarps / 2);
    const int warp_row = warp % (kWarps / 2) * kWarpRows;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = rows.sum[i];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      const float inverse = sum == 0 ? 0 : 1 / sum;
      const int row = warp_row + lane / 4 + 8 * i;
      const uint32_t o_there =
          ptx::mapa(ptx::shared_address(&parts.o[part][row][lane % 4 * 2]), to);
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) {
        const float* pair = o + 4 * j + 2 * i;
        ptx::st_shared_cluster_v2(o_there + 8 * j * static_cast<int>(sizeof(float)),
                                  {pair[0] * inverse, pair[1] * inverse});
      }
      if (lane % 4 == 0) {
        ptx::st_shared_cluster(ptx::mapa(ptx::shared_address(&parts.logsumexp[part][row]), to),
                               (rows.maximum[i] + log2f(sum)) * std::numbers::ln2_v<float>);
      }
    }
  }

  // Merges a row of both parts, as merge_parts.cuh does those of many, and stores it: `tile_row`.
  static __device__ __forceinline__ void merge_row(const Arguments& a, const Tile& tile,
                                                   const Parts& parts, int row, int tile_row,
                                                   int lane) {
    float weights[2] = {parts.logsumexp[0][row], parts.logsumexp[1][row]};
    const float maximum = fmaxf(weights[0], weights[1]);
    for (float& weight : weights) weight = expf(weight - (maximum == -kInfinity ? 0 : maximum));
    const float sum = weights[0] + weights[1], inverse = sum == 0 ? 0 : 1 / sum;
    const auto [head, query] = Tiles::packed_row(a, tile, tile_row);
    if (lane == 0) {
      a.logsumexp[tile.batch * a.logsumexp_batch_stride + head * a.logsumexp_head_stride +
                  tile.first_q + query] = maximum + logf(sum);
    }
    T* const out = static_cast<T*>(a.o) + tile.batch * a.o_batch_stride + head * a.o_head_stride +
                   (tile.first_q + query) * a.o_row_stride;
#pragma unroll
    for (int first = 0; first < kHeadDim; first += 4 * 32) {
      const int column = first + 4 * lane;
      if (column >= a.head_dim) break;
      const auto x = *reinterpret_cast<const float4*>(&parts.o[0][row][column]);
      const auto y = *reinterpret_cast<const float4*>(&parts.o[1][row][column]);
      const float factors[2] = {weights[0] * inverse, weights[1] * inverse};
      *reinterpret_cast<uint2*>(out + column) =
          make_uint2(ptx::cvt_rn_x2<T>(factors[0] * x.x + factors[1] * y.x,
                                       factors[0] * x.y + factors[1] * y.y),
                     ptx::cvt_rn_x2<T>(factors[0] * x.z + factors[1] * y.z,
                                       factors[0] * x.w + factors[1] * y.w));
    }
  }
};

}  // namespace flashbench::kernels::sm90
