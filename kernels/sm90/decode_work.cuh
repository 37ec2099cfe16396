// What a thread block of the decoding kernel for Hopper computes: a block of a unit's rows, over a
// range of keys.
#pragma once

#include <cstdint>

#include "kernels/common/strides.h"
#include "kernels/ptx/cluster.h"
#include "kernels/sm90/decode_arguments.cuh"
#include "kernels/sm90/decode_portions.cuh"

namespace flashbench::kernels::sm90 {

template <DecodeConfig kConfig>
struct DecodeWork {
  static constexpr int kBlockQ = 16 * kConfig.row_tiles;
  static constexpr bool kTakesPortions = kConfig.batch == DecodeBatch::portions;

  // What a thread block computes. Thread blocks that read the same keys of all heads are
  // neighbours, so that they read neighbouring memory at about the same time.
  struct Place {
    int kv_head, row_block, cluster, rank;
    float k_factor = 1, v_factor = 1;  // of a cache of bytes

    __device__ explicit Place(const DecodeArguments& a) : cluster(0), rank(0) {
      find_unit(a);
      if constexpr (kConfig.byte_cache) {
        k_factor = __ldg(a.k_factors + kv_head * a.factor_stride);
        v_factor = __ldg(a.v_factors + kv_head * a.factor_stride);
      }
    }
    __device__ void find_unit(const DecodeArguments& a) {
      if constexpr (kTakesPortions) {
        kv_head = static_cast<int>(blockIdx.y);
        row_block = static_cast<int>(blockIdx.x);
        return;
      }
      cluster = ptx::clusterid_z();
      rank = ptx::cluster_ctarank();
      kv_head = static_cast<int>(blockIdx.x);
      row_block = 0;
      if (a.row_blocks == 1) return;
      row_block = kv_head % a.row_blocks;
      kv_head /= a.row_blocks;
    }
    // The number of the unit; of the thread block among those of a portion.
    __device__ int unit() const { return static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x); }
  };
  using Request = DecodeRequest;

  // A block of a unit's rows. Row i is of query i / group, and of head i % group of the group.
  struct Rows {
    int first, count;

    __device__ Rows(const DecodeArguments& a, const Place& place, const Request& request)
        : first(place.row_block * kBlockQ), count(min(kBlockQ, a.group * request.q_len - first)) {}
    // row / group. Exact for fewer than 2^20 rows: a quotient is half a row away from an integer.
    __device__ int query(const DecodeArguments& a, int row) const {
      return static_cast<int>((static_cast<float>(first + row) + 0.5f) * a.inverse_group);
    }
  };
  // Where one of them lies in Q and O.
  struct Row {
    int query, head;

    __device__ Row(const DecodeArguments& a, const Place& place, const Rows& rows, int row)
        : query(rows.query(a, row)),
          head(place.kv_head * a.group + rows.first + row - query * a.group) {}
    __device__ int64_t offset(const Request& request, const Strides& strides) const {
      return request.number * strides.batch + head * strides.head +
             (request.first_q + query) * strides.row;
    }
  };

  // The keys that the warps of a thread block take tiles of in turn: from its first one on, a warp
  // has every step-th.
  struct KeyRange {
    int first, step, end;
  };
};

}  // namespace flashbench::kernels::sm90
