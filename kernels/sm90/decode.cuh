// Attention forward on Hopper (sm_90a) for few queries and many keys, as in decoding, where the
// time is that of reading K and V once.
//
// A unit is what reads the same K and V: the queries of all heads of a group, packed into rows. A
// thread block takes a unit, or a part of its keys. Each warp has tiles of keys of its own, with a
// ring in shared memory that nobody else touches, and computes all rows for them: there is no
// barrier in the loop. At the end the partial results are merged, in a fixed order: those of the
// warps in shared memory; those of the thread blocks of a cluster, which send each other the
// columns that the other merges; and those of several clusters in global memory, by the last one to
// announce its part.
//
// Where lengths are equal, the host splits all units alike (Splits). Else thread blocks find their
// keys from the lengths in device memory (Portions), and merge in global memory alone.
//
// The parts: decode_arguments.cuh has the configurations, decode_shapes.cuh the sizes and shared
// memory, decode_work.cuh and decode_portions.cuh which rows and keys a thread block has,
// decode_keys.cuh where keys lie in memory, decode_loads.cuh the loads, decode_attention.cuh the
// loop over the keys, and decode_merge.cuh the end.
#pragma once

#include "kernels/sm90/decode_arguments.cuh"
#include "kernels/sm90/decode_attention.cuh"
#include "kernels/sm90/decode_loads.cuh"
#include "kernels/sm90/decode_merge.cuh"
#include "kernels/sm90/decode_portions.cuh"
#include "kernels/sm90/decode_shapes.cuh"
#include "kernels/sm90/decode_work.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, DecodeConfig kConfig, typename Delay = NoDelay>
struct Decode : DecodeShapes<T, kConfig> {
  using Shapes = DecodeShapes<T, kConfig>;
  using Shapes::kBlockKv, Shapes::kTakesPortions, Shapes::kLoadsAhead;
  using typename Shapes::Shared;
  using Request = DecodeRequest;
  using Place = typename DecodeWork<kConfig>::Place;
  using Rows = typename DecodeWork<kConfig>::Rows;
  using KeyRange = typename DecodeWork<kConfig>::KeyRange;
  using Loads = DecodeLoads<T, kConfig>;
  using InFlight = typename Loads::InFlight;
  using Attention = DecodeAttention<T, kConfig, Delay>;
  using State = typename Attention::State;
  using Merge = DecodeMerge<T, kConfig, Delay>;
  using Shares = typename Merge::Shares;
  using Announced = typename Merge::Announced;

  static __device__ Shared& shared_memory() {
    extern __shared__ __align__(128) char memory[];
    return *reinterpret_cast<Shared*>(memory);
  }

  // A split of a unit.
  static __device__ void run_split(const DecodeArguments& a) {
    Shared& shared = shared_memory();
    const Place place(a);
    const Request request = Request::equal(a, static_cast<int>(blockIdx.y));
    const Rows rows(a, place, request);
    const Shares shares(a, rows);
    if (shares.cluster_size > 1) Merge::expect_parts(shares, place.rank, shared);
    // The warps of all splits take tiles in turn.
    const int split = place.cluster * a.cluster_size + place.rank;
    const KeyRange range{request.first_key(rows.query(a, 0)) + split * kBlockKv,
                         a.clusters * a.cluster_size * kBlockKv,
                         request.end_key(rows.query(a, rows.count - 1))};
    InFlight loads = Loads::begin(a, shared, place, request, rows, range, shared.q[0]);
    State state;
    Attention::attend(a, shared, request, rows, loads, state);
    const Announced announced = Merge::announce(a, place);
    Merge::store_state(rows, state, shared);
    Delay::before_barrier();
    __syncthreads();
    Merge::merge_all(a, shared, place, request, rows, shares, announced);
  }

  // The pieces of every portion that this thread block takes.
  static __device__ void run_portions(const DecodeArguments& a) {
    Shared& shared = shared_memory();
    const Place place(a);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    Portions<kBlockKv> portions(a, shared.ways[warp].walk);
    int turn = 0;
    const auto next = [&]() -> DecodePiece& { return shared.ways[warp].pieces[turn]; };
    // Some requests have no rows for this thread block.
    const auto find_next = [&] {
      while (portions.next(next())) {
        if (Rows(a, place, next().request).count > 0) return true;
      }
      return false;
    };
    const auto begin_next = [&] {
      const Request& request = next().request;
      const Rows rows(a, place, request);
      const int end = request.end_key(rows.query(a, rows.count - 1));
      return Loads::begin(a, shared, place, request, rows,
                          {next().first_key, kBlockKv, min(next().end_key, end)},
                          shared.q[kLoadsAhead ? turn : 0]);
    };
    InFlight loads;
    Announced announced;
    // The first turn only begins to load. With code of its own, more instructions would have to be
    // fetched.
#pragma unroll 1
    for (bool has_piece = false;; has_piece = true) {
      const bool is_more = find_next();
      if (kLoadsAhead && is_more) loads = begin_next();
      if (has_piece) {
        const DecodePiece& piece = shared.ways[warp].pieces[turn ^ 1];
        Delay::before_barrier();
        __syncthreads();
        Merge::merge_parts(a, shared, place, piece.request, Rows(a, place, piece.request),
                           piece.parts, announced);
      }
      if (!is_more) return;
      if (!kLoadsAhead) {
        Delay::before_barrier();
        __syncthreads();  // before the next keys take the place of what is merged
        loads = begin_next();
      }
      const DecodePiece& piece = next();
      const Rows rows(a, place, piece.request);
      State state;
      Attention::attend(a, shared, piece.request, rows, loads, state);
      announced = Merge::announce(a, place, piece.parts);
      Merge::store_state(rows, state, shared);
      turn ^= 1;
    }
  }

  static __device__ void run(const DecodeArguments& a) {
    if constexpr (kTakesPortions) {
      run_portions(a);
    } else {
      run_split(a);
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kAtOnce)
    decode_kernel(const __grid_constant__ DecodeArguments arguments) {
  Kernel::run(arguments);
}

}  // namespace flashbench::kernels::sm90
