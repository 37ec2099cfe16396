// How a decoding kernel for Hopper merges partial results, in a fixed order: those of the warps in
// shared memory, those of a cluster's thread blocks by messages, those of several clusters or
// portions in global memory.
#pragma once

#include <cstdint>
#include <numbers>
#include <type_traits>

#include "kernels/ptx/atom.h"
#include "kernels/ptx/cluster.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/decode_arguments.cuh"
#include "kernels/sm90/decode_attention.cuh"
#include "kernels/sm90/decode_portions.cuh"
#include "kernels/sm90/decode_shapes.cuh"
#include "kernels/sm90/decode_splits.h"
#include "kernels/sm90/decode_work.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, DecodeConfig kConfig, typename Delay>
struct DecodeMerge : DecodeShapes<T, kConfig> {
  using Shapes = DecodeShapes<T, kConfig>;
  using Shapes::kRowTiles, Shapes::kWarps, Shapes::kBlockQ, Shapes::kValueTiles, Shapes::kInfinity,
      Shapes::kTakesPortions, Shapes::kColumns, Shapes::kByteCache, Shapes::kFp32O;
  using typename Shapes::Shared;
  using Request = DecodeRequest;
  using Place = typename DecodeWork<kConfig>::Place;
  using Rows = typename DecodeWork<kConfig>::Rows;
  using Row = typename DecodeWork<kConfig>::Row;
  using Attention = DecodeAttention<T, kConfig, Delay>;
  using State = typename Attention::State;

  // Four columns of a row of O, relative to `maximum`, and the row's sum.
  struct Part {
    float maximum, sum;
    float4 o;

    __device__ void add(const Part& part, float weight) {
      sum += weight * part.sum;
      o.x += weight * part.o.x;
      o.y += weight * part.o.y;
      o.z += weight * part.o.z;
      o.w += weight * part.o.w;
    }
  };

  // Merges `count` parts of a row in order. read(i) reads part i. Parts are read several at a time.
  template <int kAtATime, typename Read>
  static __device__ Part merge(int count, const Read& read) {
    Part merged{-kInfinity, 0, {0, 0, 0, 0}};
    for (int first = 0; first < count; first += kAtATime) {
      Part parts[kAtATime];
      float maximum = merged.maximum;
#pragma unroll
      for (int i = 0; i < kAtATime; ++i) {
        parts[i] = first + i < count ? read(first + i) : Part{-kInfinity, 0, {0, 0, 0, 0}};
      }
#pragma unroll
      for (const Part& part : parts) maximum = fmaxf(maximum, part.maximum);
      const float base = Attention::base_of(maximum);
      Part sum{maximum, 0, {0, 0, 0, 0}};
      sum.add(merged, ptx::ex2_approx_ftz(merged.maximum - base));
#pragma unroll
      for (const Part& part : parts) sum.add(part, ptx::ex2_approx_ftz(part.maximum - base));
      merged = sum;
    }
    return merged;
  }

  // The shares of a block's rows. Those of thread block `rank` of a cluster are `rank` and every
  // cluster_size-th after it; cluster_size is a power of two.
  struct Shares {
    int all, cluster_size, shift;

    __device__ Shares(const DecodeArguments& a, const Rows& rows)
        : all((rows.count * kColumns + 31) / 32), cluster_size(a.cluster_size) {
      shift = __ffs(cluster_size) - 1;
    }
    __device__ int owner(int share) const { return share & (cluster_size - 1); }
    __device__ int number_at_owner(int share) const { return share >> shift; }
    // How many a thread block has at most, and how many this one has.
    __device__ int most() const { return (all + cluster_size - 1) >> shift; }
    __device__ int of(int rank) const { return (all - rank + cluster_size - 1) >> shift; }
    __device__ int own(int number, int rank) const { return (number << shift) + rank; }
  };
  // The row and the first column of this lane's part of a share.
  static __device__ int row_of(int share) {
    return (share * 32 + static_cast<int>(threadIdx.x) % 32) / kColumns;
  }
  static __device__ int column_of(int share) {
    return (share * 32 + static_cast<int>(threadIdx.x) % 32) % kColumns * 4;
  }

  static __device__ void store_state(const Rows& rows, const State& state, Shared& shared) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();  // all lanes have read the last tile
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = r * 16 + half * 8 + lane / 4;
        if (r * 16 + half * 8 >= rows.count) continue;
        float sum = state.sum[r][half];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (lane % 4 == 0) {
          shared.maximum[warp][row] = state.maximum[r][half] - Attention::kPExponent;
          shared.sum[warp][row] = sum;
        }
        float* o = shared.warps[warp].o[row];
        if constexpr (kByteCache) {
          // Tiles of even and of odd columns (DecodeAttention::multiply_pv_of_bytes).
#pragma unroll
          for (int t = 0; t < kValueTiles; t += 2) {
            *reinterpret_cast<float4*>(o + t * 8 + lane % 4 * 4) = {
                state.o[r][t][2 * half], state.o[r][t + 1][2 * half], state.o[r][t][2 * half + 1],
                state.o[r][t + 1][2 * half + 1]};
          }
        } else {
#pragma unroll
          for (int t = 0; t < kValueTiles; ++t) {
            *reinterpret_cast<float2*>(o + t * 8 + lane % 4 * 2) = {state.o[r][t][2 * half],
                                                                    state.o[r][t][2 * half + 1]};
          }
        }
      }
    }
  }

  static __device__ Part merge_warps(const Shared& shared, int row, int column) {
    return merge<kWarps>(kWarps, [&](int i) {
      const float4 o = *reinterpret_cast<const float4*>(&shared.warps[i].o[row][column]);
      return Part{shared.maximum[i][row], shared.sum[i][row], o};
    });
  }

  // The place in the memory of its owner for what thread block `rank` sends of a share.
  static __device__ int received_at(const Shares& shares, int number_at_owner, int rank) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return (rank * shares.most() + number_at_owner) * 32 + lane;
  }

  // Makes this thread block ready to receive; the cluster's barrier tells the others.
  static __device__ void expect_parts(const Shares& shares, int rank, Shared& shared) {
    constexpr int kBytes = 32 * (sizeof(float4) + sizeof(float2));
    if (threadIdx.x == 0) {
      const uint32_t received = ptx::shared_address(&shared.received);
      ptx::mbarrier_init(received, 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect_tx(received, shares.of(rank) * shares.cluster_size * kBytes);
    }
    ptx::barrier_cluster_arrive_relaxed();
  }

  // Sends this lane's part to the owner of the share.
  static __device__ void send(const Shares& shares, int share, int rank, const Part& part,
                              Shared& shared) {
    const int owner = shares.owner(share);
    const int at = received_at(shares, shares.number_at_owner(share), rank);
    const uint32_t barrier = ptx::mapa(ptx::shared_address(&shared.received), owner);
    ptx::st_async_v4(ptx::mapa(ptx::shared_address(&shared.received_o[at]), owner), part.o,
                     barrier);
    ptx::st_async_v2(ptx::mapa(ptx::shared_address(&shared.received_sums[at]), owner),
                     {part.maximum, part.sum}, barrier);
  }

  static __device__ Part merge_cluster(const Shares& shares, int number, const Shared& shared) {
    return merge<kLargestCluster>(shares.cluster_size, [&](int i) {
      const int at = received_at(shares, number, i);
      const float2 sums = shared.received_sums[at];
      return Part{sums.x, sums.y, shared.received_o[at]};
    });
  }

  // Where a thread block leaves its share of a part of a unit.
  struct PartialRows {
    float* o;
    float2* sums;

    // Of a cluster's part.
    __device__ PartialRows(const DecodeArguments& a, const Place& place, int cluster) {
      const int64_t part = int64_t{place.unit()} * a.clusters + cluster;
      o = a.partial_o + part * kBlockQ * a.value_dim;
      sums = reinterpret_cast<float2*>(a.partial_sums) +
             (part * a.cluster_size + place.rank) * kBlockQ;
    }
    // Of part `number` of a unit in portions. A portion begins with part of a unit, and ends with
    // the first part of another.
    __device__ PartialRows(const DecodeArguments& a, const Place& place, const DecodeParts& parts,
                           int number) {
      const int64_t portion = parts.first_portion + number;
      const int64_t slot = portion * a.part_slots + (number == 0 ? a.part_slots - 1 : 0);
      const int64_t row = (slot * (gridDim.x * gridDim.y) + place.unit()) * a.part_rows;
      o = a.partial_o + row * a.value_dim;
      sums = reinterpret_cast<float2*>(a.partial_sums) + row;
    }

    __device__ void write(const DecodeArguments& a, int row, int column, const Part& part) const {
      *reinterpret_cast<float4*>(o + row * a.value_dim + column) = part.o;
      // Each writes its own copy of the sums, or the same.
      sums[row] = {part.maximum, part.sum};
    }
    __device__ Part read(const DecodeArguments& a, int row, int column) const {
      const float2 both = __ldcg(sums + row);
      const float4 four = __ldcg(reinterpret_cast<const float4*>(o + row * a.value_dim + column));
      return Part{both.x, both.y, four};
    }
  };

  // What is stored of four columns of O.
  using O = std::conditional_t<kFp32O, float, T>;
  static __device__ auto packed_o(const float4& o, float factor) {
    if constexpr (kFp32O) {
      return float4{o.x * factor, o.y * factor, o.z * factor, o.w * factor};
    } else {
      return uint2{ptx::cvt_rn_x2<T>(o.x * factor, o.y * factor),
                   ptx::cvt_rn_x2<T>(o.z * factor, o.w * factor)};
    }
  }
  static __device__ void store(const DecodeArguments& a, const Place& place, const Request& request,
                               const Rows& rows, int row, int column, const Part& part) {
    float inverse = part.sum == 0 ? 0 : 1 / part.sum;
    if constexpr (kByteCache) inverse *= place.v_factor;
    const auto packed = packed_o(part.o, inverse);
    const Row here(a, place, rows, row);
    O* o = static_cast<O*>(a.tensors.o) + here.offset(request, a.tensors.o_strides) + column;
    *reinterpret_cast<std::remove_const_t<decltype(packed)>*>(o) = packed;
    if (column == 0) {
      a.tensors.logsumexp[logsumexp_index(a, request, here)] =
          (part.maximum + log2f(part.sum)) * std::numbers::ln2_v<float>;
    }
  }
  static __device__ int64_t logsumexp_index(const DecodeArguments& a, const Request& request,
                                            const Row& here) {
    if constexpr (kTakesPortions) {
      return request.number * a.logsumexp_batch + here.head * a.logsumexp_head + request.first_q +
             here.query;
    }
    const int64_t head = int64_t{request.number} * a.kv_heads * a.group + here.head;
    return head * a.q_len + here.query;
  }

  // Returns whether this thread block is the last of `count` that merge the same columns of a unit.
  // What the others have written is then visible. The counter starts at UINT_MAX, or where the last
  // launch with as many left it, at count - 1.
  static __device__ bool arrive_last(unsigned* counter, int count, Shared& shared) {
    Delay::before_barrier();
    __syncthreads();
    if (threadIdx.x == 0) {
      const auto others = static_cast<unsigned>(count - 1);
      shared.is_last = ptx::atom_inc_acq_rel_gpu(counter, others) == others - 1;
      // In portions, the next launch may have more parts here.
      if (kTakesPortions && shared.is_last) *counter = ~0u;
    }
    __syncthreads();
    return shared.is_last;
  }

  // Calls body(row, column) for this lane's part of a share, if the tensors have it.
  template <typename Body>
  static __device__ void in_share(const DecodeArguments& a, const Rows& rows, int share,
                                  const Body& body) {
    const int row = row_of(share), column = column_of(share);
    if (row < rows.count && column < a.value_dim) body(row, column);
  }

  // Stores a part that all splits of the cluster have added to, or leaves it to the last cluster.
  static __device__ void finish(const DecodeArguments& a, const Place& place,
                                const Request& request, const Rows& rows, int share,
                                const Part& part) {
    in_share(a, rows, share, [&](int row, int column) {
      if (a.clusters == 1) return store(a, place, request, rows, row, column, part);
      PartialRows(a, place, place.cluster).write(a, row, column, part);
    });
  }

  // Merges what the warps of all thread blocks of the unit have stored in their shared memory.
  static __device__ void merge_all(const DecodeArguments& a, Shared& shared, const Place& place,
                                   const Request& request, const Rows& rows, const Shares& shares) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const bool is_cluster = shares.cluster_size > 1;
    if (is_cluster) ptx::barrier_cluster_wait();  // all are ready to receive
#pragma unroll 1
    for (int share = warp; share < shares.all; share += kWarps) {
      const Part part = merge_warps(shared, row_of(share), column_of(share));
      if (is_cluster) {
        send(shares, share, place.rank, part, shared);
      } else {
        finish(a, place, request, rows, share, part);
      }
    }
    const int own_shares = shares.of(place.rank);
    if (is_cluster && own_shares > 0) {
      Delay::before_barrier();
      while (!ptx::mbarrier_try_wait_parity(ptx::shared_address(&shared.received), 0)) {
      }
#pragma unroll 1
      for (int i = warp; i < own_shares; i += kWarps) {
        finish(a, place, request, rows, shares.own(i, place.rank),
               merge_cluster(shares, i, shared));
      }
    }
    if (a.clusters == 1) return;
    unsigned* counter = a.last_arrived + int64_t{place.unit()} * a.cluster_size + place.rank;
    if (!arrive_last(counter, a.clusters, shared)) return;
#pragma unroll 1
    for (int i = warp; i < own_shares; i += kWarps) {
      in_share(a, rows, shares.own(i, place.rank), [&](int row, int column) {
        const Part part = merge<8>(a.clusters, [&](int cluster) {
          return PartialRows(a, place, cluster).read(a, row, column);
        });
        store(a, place, request, rows, row, column, part);
      });
    }
  }

  // The same for a part of a unit in portions.
  static __device__ void merge_parts(const DecodeArguments& a, Shared& shared, const Place& place,
                                     const Request& request, const Rows& rows,
                                     const DecodeParts& parts) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int shares = (rows.count * kColumns + 31) / 32;
#pragma unroll 1
    for (int share = warp; share < shares; share += kWarps) {
      in_share(a, rows, share, [&](int row, int column) {
        const Part part = merge_warps(shared, row, column);
        if (parts.count == 1) return store(a, place, request, rows, row, column, part);
        PartialRows(a, place, parts, parts.own).write(a, row, column, part);
      });
    }
    if (parts.count == 1) return;
    unsigned* counter =
        a.last_arrived + int64_t{parts.first_portion} * (gridDim.x * gridDim.y) + place.unit();
    if (!arrive_last(counter, parts.count, shared)) return;
    // As many reads at a time as registers allow, of one share or of several.
    if (parts.count <= 4) {
      merge_in_memory<4, 4>(a, place, request, rows, parts, shares);
    } else {
      merge_in_memory<1, 16>(a, place, request, rows, parts, shares);
    }
  }
  template <int kTogether, int kAtATime>
  static __device__ void merge_in_memory(const DecodeArguments& a, const Place& place,
                                         const Request& request, const Rows& rows,
                                         const DecodeParts& parts, int shares) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll 1
    for (int first = warp; first < shares; first += kTogether * kWarps) {
      Part merged[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        // Behind the last share, the last row again.
        const int share = min(first + i * kWarps, shares - 1);
        const int row = min(row_of(share), rows.count - 1);
        const int column = min(column_of(share), a.value_dim - 4);
        merged[i] = merge<kAtATime>(parts.count, [&](int number) {
          return PartialRows(a, place, parts, number).read(a, row, column);
        });
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int share = first + i * kWarps;
        if (share >= shares) break;
        in_share(a, rows, share, [&](int row, int column) {
          store(a, place, request, rows, row, column, merged[i]);
        });
      }
    }
  }
};

}  // namespace flashbench::kernels::sm90
