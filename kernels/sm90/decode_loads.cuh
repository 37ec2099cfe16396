// The loads of a decoding kernel for Hopper, ahead of their use: Q by the whole thread block; K and
// V by each warp for itself, to its ring in shared memory.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/common/strides.h"
#include "kernels/ptx/cp_async.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/decode_arguments.cuh"
#include "kernels/sm90/decode_keys.cuh"
#include "kernels/sm90/decode_portions.cuh"
#include "kernels/sm90/decode_shapes.cuh"
#include "kernels/sm90/decode_work.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, DecodeConfig kConfig>
struct DecodeLoads : DecodeShapes<T, kConfig> {
  using Shapes = DecodeShapes<T, kConfig>;
  using Shapes::kHeadDim, Shapes::kValueDim, Shapes::kKeys, Shapes::kStages, Shapes::kThreads,
      Shapes::kBlockQ, Shapes::kByteCache;
  using typename Shapes::QTile, typename Shapes::KTile, typename Shapes::VTile,
      typename Shapes::Keys, typename Shapes::Key, typename Shapes::Shared;
  using Request = DecodeRequest;
  using Place = typename DecodeWork<kConfig>::Place;
  using Rows = typename DecodeWork<kConfig>::Rows;
  using Row = typename DecodeWork<kConfig>::Row;
  using KeyRange = typename DecodeWork<kConfig>::KeyRange;

  static constexpr int kChunks = kHeadDim / 8;  // of 16 bytes
  // Beside a cache of bytes, as many lanes as a power of two load a row, and find its largest
  // element together.
  static constexpr int kRowLanes = kByteCache && kChunks == 24 ? 32 : kChunks;
  static_assert(!kByteCache || (kRowLanes & (kRowLanes - 1)) == 0);
  static constexpr int kThreadChunks = (kBlockQ * kRowLanes + kThreads - 1) / kThreads;

  // Where V's part of a warp's ring begins, and the offset in it of the stage that is at this
  // offset in K's.
  static constexpr uint32_t kV = kStages * KTile::kBytes;
  static __device__ uint32_t v_stage(uint32_t stage) {
    return kHeadDim == kValueDim ? stage : stage / KTile::kBytes * VTile::kBytes;
  }

  // Loads that are under way: that of Q, and those of keys to the warp's ring.
  struct InFlight {
    char* q;
    Keys keys;
    int key;  // of the warp's first tile
    KeyRange range;
    float scale;  // takes the products of Q and K as they are to exponents in base 2

    // A group of copies each, of nothing behind the end.
    template <bool kFirst = false>
    __device__ void load_k(const DecodeArguments& a, uint32_t ring, uint32_t stage, int key) {
      if (key < range.end) {
        if constexpr (kFirst) {
          keys.turn_to_first();
        } else {
          keys.turn_to(a, key, range.step);
        }
        load_keys<KTile>(ring + stage, keys.k(a, key), key, range.end, a.head_dim);
      }
      ptx::cp_async_commit_group();
    }
    __device__ void load_v(const DecodeArguments& a, uint32_t ring, uint32_t stage, int key) {
      if (key < range.end) {
        load_keys<VTile>(ring + kV + v_stage(stage), keys.v(a, key), key, range.end, a.value_dim);
      }
      ptx::cp_async_commit_group();
    }
  };

  // Begins to load Q and this warp's first tiles of a range of keys. Q comes first, because it
  // would wait for all of the ring otherwise.
  static __device__ InFlight begin(const DecodeArguments& a, Shared& shared, const Place& place,
                                   const Request& request, const Rows& rows, const KeyRange& range,
                                   char* q) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const uint32_t ring = ptx::shared_address(&shared.warps[warp].ring);
    InFlight loads{.q = q,
                   .keys = keys_of(a, place, request, range.end),
                   .key = range.first + warp * kKeys,
                   .range = range,
                   .scale = a.scale_log2 * place.k_factor};
    loads.keys.look_up_first(a, loads.key, range.step);
    load_q(a, place, request, rows, ptx::shared_address(q));
    ptx::cp_async_commit_group();
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) {
      loads.template load_k<true>(a, ring, i * KTile::kBytes, loads.key + i * range.step);
      loads.load_v(a, ring, i * KTile::kBytes, loads.key + i * range.step);
    }
    return loads;
  }

  // Every thread loads a part of Q. Rows that do not exist are zeros.
  static __device__ void load_q(const DecodeArguments& a, const Place& place,
                                const Request& request, const Rows& rows, uint32_t tile) {
#pragma unroll
    for (int i = 0; i < kThreadChunks; ++i) {
      const int row = row_of_q(i), chunk = chunk_of_q(i);
      if (row >= kBlockQ || chunk >= kChunks) continue;
      const bool inside = row < rows.count && chunk * 8 < a.head_dim;
      const Row here(a, place, rows, row);
      const T* from = static_cast<const T*>(a.tensors.q) +
                      here.offset(request, a.tensors.q_strides) + chunk * 8;
      ptx::cp_async_16(tile + QTile::offset(row, chunk), from, inside ? 16 : 0);
    }
  }
  static __device__ int row_of_q(int i) {
    return (i * kThreads + static_cast<int>(threadIdx.x)) / kRowLanes;
  }
  static __device__ int chunk_of_q(int i) {
    return (i * kThreads + static_cast<int>(threadIdx.x)) % kRowLanes;
  }

  // Makes Q, of which every thread has what it has loaded, fp16, for products with bytes. bf16 has
  // a larger range: each row is multiplied by a power of two that takes its largest element to 2^14
  // or a little more. What fp16 then cannot hold exactly is less than 2^-30 of that, far less than
  // a sum in fp32 loses. The scale of each row goes to shared memory, without that power. The
  // columns of each 16 are in the order in which a lane's four bytes of K are the columns of its
  // two registers of B: 0 1 4 5 8 9 12 13, 2 3 6 7 ...
  static __device__ void scale_q(const InFlight& loads, Shared& shared) {
#pragma unroll
    for (int i = 0; i < kThreadChunks; ++i) {
      const int row = row_of_q(i), chunk = chunk_of_q(i);
      const bool has = row < kBlockQ && chunk < kChunks;
      uint4 q = {0, 0, 0, 0};
      if (has) q = *reinterpret_cast<const uint4*>(loads.q + QTile::offset(row, chunk));
      uint32_t halves[4] = {q.x, q.y, q.z, q.w};
      float inverse = 1;
      if constexpr (!std::is_same_v<T, __half>) inverse = scale_row(halves);
      __syncwarp();  // a chunk's neighbour, whose place it takes half of, is the next lane's
      if (!has) continue;
      if (chunk == 0) shared.score_scale[row] = loads.scale * inverse;
      const int half = chunk % 2 * 8;
      *reinterpret_cast<uint2*>(loads.q + QTile::offset(row, chunk & ~1) + half) = {halves[0],
                                                                                    halves[2]};
      *reinterpret_cast<uint2*>(loads.q + QTile::offset(row, chunk | 1) + half) = {halves[1],
                                                                                   halves[3]};
    }
  }
  // Makes eight bf16 of a row eight fp16, times that power of two. Returns its inverse.
  static __device__ float scale_row(uint32_t (&two)[4]) {
    float x[8], largest = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      x[j] = __uint_as_float(j % 2 == 0 ? two[j / 2] << 16 : two[j / 2] & 0xffff0000u);
      largest = fmaxf(largest, fabsf(x[j]));
    }
#pragma unroll
    for (int step = 1; step < kRowLanes; step *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    }
    constexpr int kBias = 127, kTop = 14, kMostShift = 120;  // of 0, and of numbers near it
    const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - kBias;
    const int shift = min(kTop - exponent, kMostShift);
    const float power = __uint_as_float(static_cast<uint32_t>(kBias + shift) << 23);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      two[j] = ptx::cvt_rn_x2<__half>(x[2 * j] * power, x[2 * j + 1] * power);
    }
    return __uint_as_float(static_cast<uint32_t>(kBias - shift) << 23);
  }

  // A warp loads a tile of K or V. Keys from `end` on are zeros, whatever memory holds there.
  template <typename Tile, typename TileRows>
  static __device__ void load_keys(uint32_t tile, const TileRows& rows, int first_key, int end,
                                   int columns) {
    constexpr int kRowsAtOnce = 32 / Tile::kRowChunks;
    constexpr int kElements = 16 / sizeof(Key);  // of a chunk
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int chunk = lane % Tile::kRowChunks, lane_row = lane / Tile::kRowChunks;
#pragma unroll
    for (int i = 0; i < kKeys; i += kRowsAtOnce) {
      const int row = i + lane_row, key = first_key + row;
      const Key* from = rows.row(key) + chunk * kElements;
      const uint32_t to = tile + Tile::chunk_offset(row, chunk);
#pragma unroll
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        const int column = panel * Tile::kRowChunks * kElements;
        const bool inside = key < end && column + chunk * kElements < columns;
        ptx::cp_async_16(to + panel * Tile::kPanelBytes, from + column, inside ? 16 : 0);
      }
    }
  }

  // The keys of a unit in memory. No page is looked up for keys from `end` on.
  static __device__ Keys keys_of(const DecodeArguments& a, const Place& place,
                                 const Request& request, int end) {
    const auto of_head = [&](const void* tensor, const Strides& strides) {
      return static_cast<const Key*>(tensor) + place.kv_head * strides.head;
    };
    const auto of_request = [&](const void* tensor, const Strides& strides) {
      return of_head(tensor, strides) + request.number * strides.batch +
             request.first_k * strides.row;
    };
    if constexpr (kConfig.batch == DecodeBatch::equal) {
      const auto rows = [&](const void* tensor, const Strides& strides) {
        return KeyRows<Key>{of_request(tensor, strides),
                            static_cast<unsigned>(strides.row * sizeof(Key))};
      };
      return {rows(a.tensors.k, a.tensors.k_strides), rows(a.tensors.v, a.tensors.v_strides)};
    } else {
      const bool paged = a.block_table != nullptr;
      return {paged ? of_head(a.tensors.k, a.tensors.k_strides)
                    : of_request(a.tensors.k, a.tensors.k_strides),
              paged ? of_head(a.tensors.v, a.tensors.v_strides)
                    : of_request(a.tensors.v, a.tensors.v_strides),
              paged ? a.block_table + request.number * a.table_stride : nullptr, end};
    }
  }
};

}  // namespace flashbench::kernels::sm90
