// How the forward kernels for Hopper store the results of a tile: O and the logsumexp.
#pragma once

#include <cstdint>
#include <numbers>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/forward_shapes.cuh"
#include "kernels/sm90/forward_softmax.cuh"
#include "kernels/sm90/forward_tiles.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, Config kConfig>
struct ForwardOutput {
  using Tiles = ForwardTiles<kConfig>;
  using Tile = typename Tiles::Tile;
  using Shapes = ForwardShapes<kConfig>;
  using Shared = typename Shapes::Shared;
  using Rows = typename ForwardSoftmax<T, kConfig>::Rows;
  static constexpr bool kByRequest = kConfig.by_request;
  static constexpr int kHeadDim = kConfig.head_dim, kOFloats = Shapes::kOFloats;
  static constexpr int kOPanelBytes = Shapes::kOPanelBytes;

  // Transposes 4x4 words of four neighbouring lanes: word i of lane l goes to word l of lane i.
  static __device__ void transpose_in_quad(uint32_t (&w)[4], int lane) {
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2) {
      const bool upper = (lane & distance) != 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((i & distance) != 0) continue;
        const uint32_t low = w[i], high = w[i + distance];
        const uint32_t other = __shfl_xor_sync(~0u, upper ? low : high, distance);
        w[i] = upper ? other : low;
        w[i + distance] = upper ? high : other;
      }
    }
  }

  static __device__ int64_t logsumexp_index(const Arguments& a, const Tile& tile, int row) {
    const auto [head, query] = Tiles::packed_row(a, tile, row);
    if constexpr (kByRequest) {
      int64_t part = 0;
      if constexpr (kConfig.in_parts) part = tile.part * a.part_rows;
      return part + tile.batch * a.logsumexp_batch_stride + head * a.logsumexp_head_stride +
             tile.first_q + query;
    } else {
      return (int64_t{tile.batch} * a.heads + head) * a.q_len + query;
    }
  }

  // Stores the logsumexp of this thread's rows. `inverse` receives the factor that turns O into the
  // output: 1 / sum, or 0 for a row that saw no key.
  static __device__ void store_logsumexp(const Arguments& a, const Tile& tile, int first_row,
                                         const Rows& rows, float (&inverse)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 8 * i;
      float sum = rows.sum[i];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      inverse[i] = sum == 0 ? 0 : 1 / sum;
      if (threadIdx.x % 4 == 0 && Tiles::exists(a, tile, row)) {
        a.logsumexp[logsumexp_index(a, tile, row)] =
            (rows.maximum[i] + log2f(sum)) * std::numbers::ln2_v<float>;
      }
    }
  }

  static __device__ int row_of_o(const Tile& tile, int row) {
    if constexpr (kByRequest) {
      return tile.first_q + row;
    } else {
      return row;
    }
  }

  // Stores O directly from registers, 16 bytes at a time.
  static __device__ void store_o(const Arguments& a, const Tile& tile, int first_row,
                                 const float (&o)[kOFloats], const float (&inverse)[2]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 8 * i;
      T* out = static_cast<T*>(a.o) + tile.batch * a.o_batch_stride + tile.head * a.o_head_stride +
               row_of_o(tile, row) * a.o_row_stride;
      // A thread holds 2 of every 8 columns. After a transpose it holds 8 adjacent ones of every
      // 32.
#pragma unroll
      for (int j = 0; j < kHeadDim / 32; ++j) {
        uint32_t words[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const float* pair = o + (4 * j + w) * 4 + 2 * i;
          words[w] = ptx::cvt_rn_x2<T>(pair[0] * inverse[i], pair[1] * inverse[i]);
        }
        transpose_in_quad(words, lane);
        const int column = j * 32 + lane % 4 * 8;
        if (Tiles::exists(a, tile, row) && column < a.head_dim) {
          *reinterpret_cast<uint4*>(out + column) =
              make_uint4(words[0], words[1], words[2], words[3]);
        }
      }
    }
  }

  // The same in fp32: a thread's 2 of every 8 columns.
  static __device__ void store_fp32_o(const Arguments& a, const Tile& tile, int first_row,
                                      const float (&o)[kOFloats], const float (&inverse)[2]) {
    const int first_column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 8 * i;
      if (!Tiles::exists(a, tile, row)) continue;
      float* out = static_cast<float*>(a.o);
      if constexpr (kConfig.in_parts) {
        out += logsumexp_index(a, tile, row) * a.o_row_stride;
      } else {
        out += tile.batch * a.o_batch_stride + tile.head * a.o_head_stride +
               row_of_o(tile, row) * a.o_row_stride;
      }
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) {
        const int column = first_column + 8 * j;
        const float* pair = o + 4 * j + 2 * i;
        if (column < a.head_dim) {
          *reinterpret_cast<float2*>(out + column) =
              make_float2(pair[0] * inverse[i], pair[1] * inverse[i]);
        }
      }
    }
  }

  // Stores O by TMA, through the warp's part of shared memory.
  static __device__ void stage_o(const Arguments& a, const Tile& tile, char* stage, int warp_row,
                                 const float (&o)[kOFloats], const float (&inverse)[2]) {
    if (threadIdx.x % 32 == 0) ptx::cp_async_bulk_wait_group_read();  // of the previous tile
    __syncwarp();
    send_rows<T>(o, inverse, ptx::shared_address(stage), kOPanelBytes, a.staged_o,
                 Tiles::o_rows(a, tile), warp_row);
  }

  // Stores the results of a tile: O / sum and the logsumexp of this warp's rows.
  static __device__ void store(const Arguments& a, Shared& shared, const Tile& tile, int consumer,
                               const float (&o)[kOFloats], const Rows& rows) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int warp_row = tile.first_query + kConsumerRows * consumer + kWarpRows * warp;
    float inverse[2];
    store_logsumexp(a, tile, warp_row + lane / 4, rows, inverse);
    if constexpr (kConfig.fp32_o) {
      store_fp32_o(a, tile, warp_row + lane / 4, o, inverse);
    } else if constexpr (kConfig.stage_o) {
      if (!kConfig.shared || a.own_rows_of_warps) {
        stage_o(a, tile, shared.o[4 * consumer + warp], warp_row, o, inverse);
      } else {
        store_o(a, tile, warp_row + lane / 4, o, inverse);
      }
    } else {
      store_o(a, tile, warp_row + lane / 4, o, inverse);
    }
    __syncwarp();
  }
};

}  // namespace flashbench::kernels::sm90
