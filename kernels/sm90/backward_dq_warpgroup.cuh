// The producer's warpgroup of the backward pass's main kernel for Hopper, where it computes dQ. The
// consumers hand it dS.
#pragma once

#include <cstddef>

#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_dq.cuh"
#include "kernels/sm90/backward_finite.cuh"
#include "kernels/sm90/backward_loads.cuh"
#include "kernels/sm90/backward_products.cuh"
#include "kernels/sm90/backward_shapes.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, BackwardConfig kConfig, typename Delay>
struct BackwardDqWarpgroup : BackwardShapes<kConfig, Delay>, Barriers<Delay> {
  using Shapes = BackwardShapes<kConfig, Delay>;
  using Shapes::kHeadDim, Shapes::kBlockQ, Shapes::kStages, Shapes::kConsumers,
      Shapes::kQPanelBytes, Shapes::kKvPanelBytes, Shapes::kDsBytes, Shapes::kDqRows,
      Shapes::kDqColumns, Shapes::kDqFloats, Shapes::kDqTiles, Shapes::kFlags;
  using typename Shapes::Work, typename Shapes::Shared, typename Shapes::Step,
      typename Shapes::Block;
  using Barriers<Delay>::wait, Barriers<Delay>::release;
  using Products = BackwardProducts<T, kConfig, Delay>;
  using Dq = BackwardDq<T, kConfig, Delay>;

  // Thread 0 also loads the blocks of queries. It refills the stage of the previous block once dS
  // shows that both consumers are done with that block.
  static __device__ void load_and_sum(const BackwardArguments& a, Shared& shared,
                                      const Work& work) {
    if (work.steps == 0) return;
    const bool leads = threadIdx.x == 0;
    BackwardLoads<kConfig, Delay> loads(a, shared, work);
    if (leads) {
      loads.first();
      for (int i = 1; i < min(kStages, work.steps); ++i) loads.next();
    }
    __syncwarp();
    typename Products::Part part(0);
    const ptx::WgmmaMatrix ds = Products::Operands::of(shared, offsetof(Shared, ds), kQPanelBytes);
    const ptx::WgmmaMatrix k = Products::Operands::of(shared, offsetof(Shared, k), kKvPanelBytes);
    Step step(work);
    wait(shared.k_full[0], 0);
    for (int i = 0; i < work.steps; ++i, step.advance(work)) {
      const int buffer = i % 2;
      const Block block(a, work, step);
      wait(shared.ds_full[buffer], i / 2 & 1);
      bool finite = true;
      if (kFlags && block.masked) {
#pragma unroll
        for (int warp = 0; warp < 4 * kConsumers; ++warp) finite &= shared.finite[buffer][warp];
      }
      constexpr int kAcross = kHeadDim / kDqColumns, kParts = kBlockQ / kDqRows * kAcross;
#pragma unroll
      for (int n = 0; n < kParts; ++n) {
        part.first_dq_row = n / kAcross * kDqRows;
        part.first_dq_column = n % kAcross * kDqColumns;
        float dq[kDqFloats];
        Products::issue_dq(dq, ds.advance(buffer * kDsBytes + part.first_dq_row * kRowBytes),
                           k.advance(part.first_dq_column * static_cast<int>(sizeof(T))));
        ptx::wgmma_commit_group();
        if (n == 0 && leads && i > 0 && i - 1 + kStages < work.steps) loads.next();
        __syncwarp();
        ptx::wgmma_wait_group<0>();
        ptx::keep_here(dq);
        const bool last = n == kParts - 1;
        if (!kFlags && block.masked) finite = __all_sync(~0u, all_finite(dq));
        if (last && finite) release(part.lane, shared.ds_empty[buffer]);
        if (finite) {
          Dq::template add<0, kDqTiles>(Dq::accumulators(a, part, block), part, dq);
        } else {
          Dq::add_seen_keys(a, shared.k, work, part, block, shared.ds[buffer]);
        }
        if (last && !finite) {
          __syncwarp();
          release(part.lane, shared.ds_empty[buffer]);
        }
      }
    }
  }
};

}  // namespace flashbench::kernels::sm90
