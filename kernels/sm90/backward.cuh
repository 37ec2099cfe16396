// The main kernel of attention's backward pass for Hopper (sm_90a). A thread block owns a block of
// keys of one K/V head and loops over the blocks of queries that see any of them:
//   S = Q K^T,  P = 2^(c S - L),  dP = dO V^T,  dS = P o (dP - D)
//   dV += P^T dO,  dK += dS^T Q,  dQ += dS K.
// dK and dV stay in registers; the thread blocks add dQ to fp32 accumulators in global memory.
//
// One warp loads K and V once by TMA, and Q and dO ahead of their use. Two consumers share the
// products of a block. S and dP are computed transposed. Up to head_dim 128 each consumer owns half
// of the keys. The accumulator fragments of P^T and dS^T, once rounded, are then the left operands
// of dV and dK, and dS goes to shared memory only for dQ. Each consumer computes half of the
// columns of dQ, over all keys of the block; at 80 and 96 the first 64 or the others. dP runs
// during the exponentials, dV during the computation of dS, and dK while dQ is added to memory.
// Unless deterministic, at 80 and 96 half of dQ is added later, while the next S runs, and at 128
// the consumers compute dQ^T, which goes through shared memory to another warp that adds it.
//
// At head_dim 64 the producer's warpgroup computes dQ, and a block has 128 queries. The consumers
// therefore need not wait for each other. They take turns instead: one computes exponentials while
// the tensor cores work for the other. Where requests differ in length, the deterministic kernel
// has the general form.
//
// Up to head_dim 128, unless deterministic, thread blocks are persistent: each computes several
// blocks of keys, one after the other (see backward_queue.cuh). At 64 those of the deterministic
// kernel are, too, and none where requests differ in length.
//
// In the deterministic kernel, thread blocks go backwards over the blocks of queries (see
// kernels/backward/work.cuh), and other warps add dQ to memory (see backward_dq_writers.cuh) or, at
// 64, the warps that compute it (see backward_dq_in_turn.cuh).
//
// At 192 and 256, where dK and dV of 64 keys exceed the registers of a consumer, the kernels have
// roles of their own: see backward_by_gradient.cuh (192) and backward_pairs.cuh (256), and how they
// pass turns in backward_dq_turns.cuh.
//
// The parts: backward_shapes.cuh has the sizes and shared memory that follow from a configuration,
// backward_arguments.cuh the arguments and the entry, backward_loads.cuh the producer,
// backward_copies.cuh what takes its place in persistent thread blocks (backward_loads_ahead.cuh
// at 64), backward_consumer.cuh a consumer's loops (on backward_products.cuh and
// backward_scores.cuh), and backward_dq.cuh how dQ gets to memory (with backward_dq_staging.cuh,
// backward_dq_warpgroup.cuh, backward_dq_in_turn.cuh and backward_dq_writers.cuh).
#pragma once

#include "kernels/ptx/setmaxnreg.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_consumer.cuh"
#include "kernels/sm90/backward_copies.cuh"
#include "kernels/sm90/backward_dq_in_turn.cuh"
#include "kernels/sm90/backward_dq_warpgroup.cuh"
#include "kernels/sm90/backward_loads.cuh"
#include "kernels/sm90/backward_shapes.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, BackwardConfig kConfig, typename Delay = NoDelay>
struct Backward : BackwardShapes<kConfig, Delay> {
  using Shapes = BackwardShapes<kConfig, Delay>;
  using typename Shapes::Shared, typename Shapes::Work, typename Shapes::Writers;

  // Of a persistent thread block.
  static __device__ __forceinline__ void run_roles(const BackwardArguments& a, Shared& shared) {
    using Copies = BackwardCopies<T, kConfig, Delay>;
    using Consumer = BackwardConsumer<T, kConfig, Delay>;
    // The shuffle tells the compiler that the warp's index is the same in all lanes.
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    if (warp < 4) {
      ptx::setmaxnreg_dec<Shapes::kProducerRegisters>();
      if constexpr (Shapes::kDqInTurn) {
        BackwardDqInTurn<T, kConfig, Delay>::load_and_sum_all(a, shared);
      } else if constexpr (Shapes::kDqWarpgroup) {
        BackwardDqWarpgroup<T, kConfig, Delay>::load_and_sum_all(a, shared);
      } else {
        if (warp == 0) Copies::load_queries(a, shared);
        if (warp == 1) Copies::load_keys(a, shared);
        if (warp == 2) Copies::store_gradients(a, shared);
        if (warp == 3) Shapes::Queue::take_all(a, *shared.queue);
      }
    } else {
      ptx::setmaxnreg_inc<Shapes::kConsumerRegisters>();
      if constexpr (Shapes::kDqWarpgroup) {
        Consumer::consume_all_in_turns(a, shared, warp / 4 - 1);
      } else if (Shapes::kDqColumnsOfLast < Shapes::kDqColumns && warp / 4 == 2) {
        Consumer::template consume_all<Shapes::kDqColumnsOfLast>(a, shared, 1);
      } else {
        Consumer::template consume_all<Shapes::kDqColumns>(a, shared, warp / 4 - 1);
      }
    }
  }

  static __device__ __forceinline__ void run_roles(const BackwardArguments& a, Shared& shared,
                                                   const Work& work) {
    // The shuffle tells the compiler that the warpgroup index is the same in all lanes.
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
      ptx::setmaxnreg_dec<Shapes::kProducerRegisters>();
      if constexpr (Shapes::kDqWarpgroup) {
        BackwardDqWarpgroup<T, kConfig, Delay>::load_and_sum(a, shared, work);
      } else {
        if (threadIdx.x == 0) BackwardLoads<kConfig, Delay>::all(a, shared, work);
      }
      if constexpr (Shapes::kHasWriters) {
        if (threadIdx.x > 0 && threadIdx.x % 32 == 0) Writers::write(a, *shared.dq_writers, work);
      }
    } else {
      ptx::setmaxnreg_inc<Shapes::kConsumerRegisters>();
      BackwardConsumer<T, kConfig, Delay>::consume(a, shared, work, warpgroup - 1);
    }
  }
};

}  // namespace flashbench::kernels::sm90
