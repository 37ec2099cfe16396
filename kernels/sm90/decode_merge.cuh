// How a decoding kernel for Hopper merges partial results, in a fixed order: those of the warps in
// shared memory, those of a cluster's thread blocks by messages, those of several clusters or
// portions in global memory.
//
// Through global memory, parts pass without fences. A thread block announces its part as soon as
// its first warp has computed its keys, and the last to do so merges all parts. Until a part is
// written, its words are poison, which no sum is; so the one who merges sees what has arrived. It
// waits only for thread blocks that run, since all have announced their parts. It leaves poison
// behind, and the counters as they were.
#pragma once

#include <cstdint>
#include <numbers>
#include <type_traits>

#include "kernels/ptx/atom.h"
#include "kernels/ptx/cluster.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/ld.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/st.h"
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

  static __device__ Part nothing() { return {-kInfinity, 0, {0, 0, 0, 0}}; }

  // Merges parts of a row, in order, with what has been merged of it before.
  template <int kParts>
  static __device__ Part merge(const Part& before, const Part (&parts)[kParts]) {
    float maximum = before.maximum;
#pragma unroll
    for (const Part& part : parts) maximum = fmaxf(maximum, part.maximum);
    const float base = Attention::base_of(maximum);
    Part sum{maximum, 0, {0, 0, 0, 0}};
    sum.add(before, ptx::ex2_approx_ftz(before.maximum - base));
#pragma unroll
    for (const Part& part : parts) sum.add(part, ptx::ex2_approx_ftz(part.maximum - base));
    return sum;
  }
  // The same of the first `count`; read(i) reads part i.
  template <int kMost, typename Read>
  static __device__ Part merge(int count, const Read& read) {
    Part parts[kMost];
#pragma unroll
    for (int i = 0; i < kMost; ++i) parts[i] = i < count ? read(i) : nothing();
    return merge(nothing(), parts);
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

  // What the first `count` warps have stored.
  static __device__ Part merge_warps(const Shared& shared, int row, int column,
                                     int count = kWarps) {
    return merge<kWarps>(count, [&](int i) {
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

    __device__ float4* o_at(const DecodeArguments& a, int row, int column) const {
      return reinterpret_cast<float4*>(o + row * a.value_dim + column);
    }
    __device__ void write(const DecodeArguments& a, int row, int column, const Part& part) const {
      ptx::st_relaxed_gpu_v4(o_at(a, row, column), part.o);
      // Each writes its own copy of the sums, or the same.
      ptx::st_relaxed_gpu_v2(sums + row, {part.maximum, part.sum});
    }
    __device__ Part read(const DecodeArguments& a, int row, int column) const {
      const float2 both = ptx::ld_relaxed_gpu_v2(sums + row);
      return Part{both.x, both.y, ptx::ld_relaxed_gpu_v4(o_at(a, row, column))};
    }
    __device__ void clear(const DecodeArguments& a, int row, int column) const {
      const float poison = __uint_as_float(kPoison);
      write(a, row, column, {poison, poison, {poison, poison, poison, poison}});
    }
  };
  // A NaN, but not the one that arithmetic results in.
  static constexpr unsigned kPoison = ~0u;
  static __device__ bool has_arrived(const Part& part) {
    const auto is_there = [](float word) { return __float_as_uint(word) != kPoison; };
    return is_there(part.maximum) && is_there(part.sum) && is_there(part.o.x) &&
           is_there(part.o.y) && is_there(part.o.z) && is_there(part.o.w);
  }

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

  // A part that this thread block has announced, of `count` with the same columns of a unit.
  struct Announced {
    unsigned* counter;
    unsigned others;
    unsigned before;  // thread 0 alone knows how many others were announced before, less 1

    Announced() = default;
    __device__ Announced(unsigned* counter, int count)
        : counter(counter), others(static_cast<unsigned>(count - 1)), before(0) {
      if (count > 1 && threadIdx.x == 0) before = ptx::atom_inc_relaxed_gpu(counter, others);
    }
    __device__ bool is_last(Shared& shared) const {
      if (threadIdx.x == 0) {
        shared.is_last = before == others - 1;
        if (shared.is_last) *counter = ~0u;
      }
      Delay::before_barrier();
      __syncthreads();
      return shared.is_last;
    }
  };
  // Of a cluster, and in portions.
  static __device__ Announced announce(const DecodeArguments& a, const Place& place) {
    return {a.announced + int64_t{place.unit()} * a.cluster_size + place.rank, a.clusters};
  }
  static __device__ Announced announce(const DecodeArguments& a, const Place& place,
                                       const DecodeParts& parts) {
    const int64_t first = int64_t{parts.first_portion} * (gridDim.x * gridDim.y);
    return {a.announced + first + place.unit(), parts.count};
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
                                   const Request& request, const Rows& rows, const Shares& shares,
                                   const Announced& announced) {
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
    if (a.clusters == 1 || !announced.is_last(shared)) return;
    merge_in_memory(
        a, shared, place, request, rows, a.clusters, own_shares,
        [&](int i) { return shares.own(i, place.rank); },
        [&](int cluster) { return PartialRows(a, place, cluster); });
  }

  // The same for a part of a unit in portions.
  static __device__ void merge_parts(const DecodeArguments& a, Shared& shared, const Place& place,
                                     const Request& request, const Rows& rows,
                                     const DecodeParts& parts, const Announced& announced) {
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
    if (parts.count == 1 || !announced.is_last(shared)) return;
    merge_in_memory(
        a, shared, place, request, rows, parts.count, shares, [](int i) { return i; },
        [&](int number) { return PartialRows(a, place, parts, number); });
  }

  // Merges `shares` shares of `count` parts in memory. Each warp merges every so many-th part in
  // the place of its own O, waiting for those that are on their way; then these are merged, as the
  // O of the warps were.
  template <typename ShareOf, typename PartOf>
  static __device__ void merge_in_memory(const DecodeArguments& a, Shared& shared,
                                         const Place& place, const Request& request,
                                         const Rows& rows, int count, int shares,
                                         const ShareOf& share_of, const PartOf& part_of) {
    // Much is read sooner with more reads in flight, and little with less code to fetch.
    constexpr int kMuch = 16 * kWarps;
    if (count * shares <= kMuch) {
      merge_in_memory<1>(a, shared, place, request, rows, count, shares, share_of, part_of);
    } else {
      merge_in_memory<4>(a, shared, place, request, rows, count, shares, share_of, part_of);
    }
  }
  template <int kParts, typename ShareOf, typename PartOf>
  static __device__ void merge_in_memory(const DecodeArguments& a, Shared& shared,
                                         const Place& place, const Request& request,
                                         const Rows& rows, int count, int shares,
                                         const ShareOf& share_of, const PartOf& part_of) {
    constexpr int kShares = 4;  // that are read together, of kParts parts
    const int warp = static_cast<int>(threadIdx.x) / 32;
    // So many-th: a power of two. Where parts are few, several warps take the shares of one in
    // turn.
    int slots = 1;
    while (slots < kWarps && slots * kParts < count) slots *= 2;
    const int slot = warp % slots, helper = warp / slots, helpers = kWarps / slots;
#pragma unroll 1
    for (int first = helper; first < shares; first += kShares * helpers) {
      Part sums[kShares];
#pragma unroll
      for (Part& sum : sums) sum = nothing();
#pragma unroll 1
      for (int number = slot; number < count; number += kParts * slots) {
        Part parts[kShares][kParts];
        bool all;
        do {
          all = true;
#pragma unroll
          for (int i = 0; i < kShares; ++i) {
            // Behind the last share, and the last part, that one again.
            const int share = share_of(min(first + i * helpers, shares - 1));
            const int row = min(row_of(share), rows.count - 1);
            const int column = min(column_of(share), a.value_dim - 4);
#pragma unroll
            for (int j = 0; j < kParts; ++j) {
              parts[i][j] = part_of(min(number + j * slots, count - 1)).read(a, row, column);
            }
          }
#pragma unroll
          for (auto& of_share : parts) {
#pragma unroll
            for (int j = 0; j < kParts; ++j) {
              all &= has_arrived(of_share[j]);
              if (number + j * slots >= count) of_share[j] = nothing();
            }
          }
        } while (!all);
#pragma unroll
        for (int i = 0; i < kShares; ++i) sums[i] = merge(sums[i], parts[i]);
      }
#pragma unroll
      for (int i = 0; i < kShares; ++i) {
        if (first + i * helpers >= shares) break;
        in_share(a, rows, share_of(first + i * helpers), [&](int row, int column) {
          *reinterpret_cast<float4*>(&shared.warps[slot].o[row][column]) = sums[i].o;
          shared.maximum[slot][row] = sums[i].maximum;
          shared.sum[slot][row] = sums[i].sum;
        });
      }
    }
    Delay::before_barrier();
    __syncthreads();
#pragma unroll 1
    for (int i = warp; i < shares; i += kWarps) {
      in_share(a, rows, share_of(i), [&](int row, int column) {
        store(a, place, request, rows, row, column, merge_warps(shared, row, column, slots));
      });
    }
#pragma unroll 1
    for (int number = slot; number < count; number += slots) {
      const PartialRows part = part_of(number);
#pragma unroll 1
      for (int i = helper; i < shares; i += helpers) {
        in_share(a, rows, share_of(i), [&](int row, int column) { part.clear(a, row, column); });
      }
    }
  }
};

}  // namespace flashbench::kernels::sm90
