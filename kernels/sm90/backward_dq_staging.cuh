// How dQ gets to memory in the backward pass's main kernel for Hopper at head_dim 128: consumers
// stage their columns of it in shared memory, and a warp has TMA add them to the accumulators. The
// same buffers then take dV of the work item, which this warp stores. Where K is not all finite
// (see backward_finite.cuh), this warp computes dQ again where a key is hidden: in the consumers'
// loop, a branch for it between the products would cost 2% of the time even where it is not taken.
#pragma once

#include <cstdint>

#include "kernels/backward/accumulator.cuh"
#include "kernels/backward/work.cuh"
#include "kernels/ptx/barrier.h"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/cp_reduce_async_bulk.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/st.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_dq.cuh"
#include "kernels/sm90/backward_shapes.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, BackwardConfig kConfig, typename Delay>
struct BackwardDqStaging : BackwardShapes<kConfig, Delay> {
  using Shapes = BackwardShapes<kConfig, Delay>;
  using Shapes::kConsumers, Shapes::kBlockQ, Shapes::kStages, Shapes::kSumsColumns,
      Shapes::kTileFloats, Shapes::kPanels, Shapes::kWarps;
  using typename Shapes::Shared, typename Shapes::Work, typename Shapes::Rows,
      typename Shapes::Step, typename Shapes::Block;
  using Dq = BackwardDq<T, kConfig, Delay>;

  // ---- A consumer, all of whose threads call

  // Waits until its buffer is free.
  static __device__ __forceinline__ void await_room(int consumer) {
    Delay::before_barrier();
    ptx::barrier_sync(kRoomBarrier + consumer, kThreads);
  }
  // Passes on what it has staged.
  static __device__ __forceinline__ void hand_over(int consumer) {
    ptx::fence_proxy_async();
    Delay::before_barrier();
    ptx::barrier_arrive(kStagedBarrier + consumer, kThreads);
  }

  // Stages a warp's part of dQ^T: 16 columns of all queries.
  template <int kFloats>
  static __device__ __forceinline__ void stage(Shared& shared, int consumer, int warp, int lane,
                                               const float (&dq)[kFloats]) {
    const uint32_t to =
        ptx::shared_address(shared.dq[consumer]) + warp * kTileBytes + lane * 4 * sizeof(float);
#pragma unroll
    for (int row = 0; row < kBlockQ / 8; ++row) {
      const float* v = dq + 4 * row;
      ptx::st_shared_v4(to + backward::transposed_tile(row, 0) * kTileBytes, v[0], v[1], v[2],
                        v[3]);
    }
  }
  // ---- The warp that adds

  // Offers both buffers for the first time.
  static __device__ __forceinline__ void begin() {
    for (int consumer = 0; consumer < kConsumers; ++consumer) offer_room(consumer);
  }

  // Adds all blocks of dQ of a work item, whose K is `keys`. `n` counts the blocks of all items.
  static __device__ __forceinline__ void add_all(const BackwardArguments& a, Shared& shared,
                                                 const Work& work, const char* keys, unsigned& n) {
    Step step(work);
    for (int i = 0; i < work.steps; ++i, ++n, step.advance(work)) {
      const Block block(a, work, step);
      float* const sums = a.dq_sums + block.first_row * kSumsColumns;
      const auto correct = [&](int consumer) {
        const int stage = n % kStages;
        if (block.hides && __any_sync(~0u, !shared.finite[stage][threadIdx.x % kWarps])) {
          sum_seen_keys(a, shared, work, block, keys, stage, consumer);
        }
      };
      send_all(shared, correct, [&](int consumer) {
        constexpr int kFloats = kBlockQ * 64;
        ptx::cp_reduce_async_bulk_add_f32(sums + consumer * kFloats,
                                          ptx::shared_address(shared.dq[consumer]),
                                          kFloats * static_cast<int>(sizeof(float)));
      });
    }
  }

  // Stores dV of work item `n`.
  static __device__ __forceinline__ void store_dv(const BackwardArguments& a, Shared& shared,
                                                  const Work& work, unsigned n) {
    const auto rows = Rows{a}.key_gradients(work, a.dv_steps);
    const auto nothing = [](int) {};
    send_all(shared, nothing, [&](int consumer) {
      store_rows<kPanels, kDvPanelBytes>(
          a.dv[0], rows, work.first_key + consumer * kConsumerRows, kConsumerRows,
          ptx::shared_address(shared.dq[consumer]),
          [&](int row) { return Shapes::stores(shared, n % 2, consumer * kConsumerRows + row); });
    });
  }

  static constexpr int kDvPanelBytes = kConsumerRows * kRowBytes;

 private:
  // One of each for each consumer; see BackwardConsumer for the others.
  static constexpr int kStagedBarrier = 4, kRoomBarrier = 6;
  static constexpr int kThreads = 128 + 32;
  static constexpr int kTileBytes = kTileFloats * static_cast<int>(sizeof(float));

  static __device__ __forceinline__ void offer_room(int consumer) {
    __syncwarp();
    Delay::before_barrier();
    ptx::barrier_arrive(kRoomBarrier + consumer, kThreads);
  }

  // Computes those elements of a consumer's staged dQ that are not finite again, key by key.
  static __device__ __forceinline__ void sum_seen_keys(const BackwardArguments& a, Shared& shared,
                                                       const Work& work, const Block& block,
                                                       const char* keys, int stage, int consumer) {
    const char* const ds = shared.ds[stage];
    const typename Dq::SeenKeys seen(a, work, block.first_query);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % 32; i < kBlockQ * 64; i += 32) {
      const int row = i / 64, column = i % 64;
      float* const to = backward::transposed_accumulator_of(shared.dq[consumer], row, column);
      if (fabsf(*to) < INFINITY) continue;
      *to = Dq::sum_seen_keys(keys, ds, seen, row, 64 * consumer + column);
    }
    ptx::fence_proxy_async();
    __syncwarp();
  }

  // Has the warp correct and the first lane send what each consumer has staged, and offers its
  // buffer when that is read.
  template <typename Correct, typename Send>
  static __device__ __forceinline__ void send_all(Shared& shared, const Correct& correct,
                                                  const Send& send) {
    static_assert(kConsumers == 2);
    for (int consumer = 0; consumer < kConsumers; ++consumer) {
      Delay::before_barrier();
      ptx::barrier_sync(kStagedBarrier + consumer, kThreads);
      correct(consumer);
      if (threadIdx.x % 32 == 0) {
        send(consumer);
        ptx::cp_async_bulk_commit_group();
      }
      __syncwarp();
    }
    ptx::cp_async_bulk_wait_group_read<1>();
    offer_room(0);
    ptx::cp_async_bulk_wait_group_read();
    offer_room(1);
  }
};

}  // namespace flashbench::kernels::sm90
