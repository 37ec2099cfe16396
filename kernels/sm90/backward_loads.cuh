// The loads of the backward pass's main kernels for Hopper: one thread has TMA copy blocks of rows
// to shared memory, ahead of their use.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_shapes.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// Copies of blocks of rows: of K or V with the work's keys, of Q or dO with a step's queries. The
// latter bring their statistics, the logsumexp or D.
template <typename Shapes>
struct BackwardBlockLoads {
  using Shared = typename Shapes::Shared;
  using Work = typename Shapes::Work;
  using Rows = typename Shapes::Rows;

  const BackwardArguments& a;
  Shared& shared;
  const Work& work;
  int first_key;
  typename Shapes::Step step;

  __device__ BackwardBlockLoads(const BackwardArguments& a_, Shared& shared_, const Work& work_)
      : BackwardBlockLoads(a_, shared_, work_, work_.first_key) {}
  // For keys of the work that begin with another one.
  __device__ BackwardBlockLoads(const BackwardArguments& a_, Shared& shared_, const Work& work_,
                                int first_key_)
      : a(a_), shared(shared_), work(work_), first_key(first_key_), step(work_) {}

  __device__ void k(unsigned buffer = 0) const {
    keys(a.k, a.k_steps, shared.k + buffer * Shapes::kKvBytes, shared.k_full[buffer]);
  }
  __device__ void v(unsigned buffer = 0) const {
    keys(a.v, a.v_steps, shared.v + buffer * Shapes::kKvBytes, shared.v_full[buffer]);
  }
  __device__ void q(auto stage) const {
    queries(a.q, a.q_steps, shared.q[stage], a.logsumexp, shared.logsumexp[stage],
            shared.q_full[stage]);
  }
  __device__ void d_o(auto stage) const { d_o(stage, stage); }
  __device__ void d_o(auto stage, auto d_stage) const {
    queries(a.d_o, a.d_o_steps, shared.d_o[stage], a.d, shared.d[d_stage], shared.d_o_full[stage]);
  }

 private:
  __device__ void keys(const CUtensorMap& tensor, const RowSteps& steps, char* to,
                       uint64_t& full) const {
    const uint32_t barrier = ptx::shared_address(&full);
    ptx::mbarrier_arrive_expect_tx(barrier, Shapes::kKvBytes);
    load_rows<Shapes::kPanels, Shapes::kKvPanelBytes>(
        tensor, to, barrier, Rows{a}.keys(work, steps), first_key, ptx::CachePolicy::evict_first);
  }
  __device__ void queries(const CUtensorMap& tensor, const RowSteps& steps, char* to,
                          const CUtensorMap& statistics, float* to_statistics,
                          uint64_t& full) const {
    const uint32_t barrier = ptx::shared_address(&full);
    constexpr int kStatisticsBytes = Shapes::kBlockQ * static_cast<int>(sizeof(float));
    ptx::mbarrier_arrive_expect_tx(barrier, Shapes::kQBytes + kStatisticsBytes);
    load_rows<Shapes::kPanels, Shapes::kQPanelBytes>(
        tensor, to, barrier, Rows{a}.queries(work, steps, step.head),
        Rows{a}.query_0() + step.block * Shapes::kBlockQ, ptx::CachePolicy::evict_last);
    ptx::cp_async_bulk_tensor_2d(ptx::shared_address(to_statistics), statistics,
                                 work.first_query_row() + step.block * Shapes::kBlockQ,
                                 work.batch * a.q_heads + step.head, barrier);
  }
};

// The loads of a thread block that is not persistent and whose producer only loads, in order: K and
// V once, Q and dO for each block of queries.
template <BackwardConfig kConfig, typename Delay>
struct BackwardLoads : Barriers<Delay> {
  using Shapes = BackwardShapes<kConfig, Delay>;
  using Barriers<Delay>::wait;

  static __device__ void all(const BackwardArguments& a, typename Shapes::Shared& shared,
                             const typename Shapes::Work& work) {
    if (work.steps == 0) return;
    BackwardBlockLoads<Shapes> blocks(a, shared, work);
    blocks.k();
    blocks.v();
    ptx::griddepcontrol_wait();
    RingPosition<Shapes::kStages> ring;
    for (int i = 0; i < work.steps; ++i, ring.advance(), blocks.step.advance(work)) {
      wait(shared.q_empty[ring.stage], ring.parity ^ 1);
      blocks.q(ring.stage);
      wait(shared.d_o_empty[ring.stage], ring.parity ^ 1);
      blocks.d_o(ring.stage);
    }
  }
};

}  // namespace flashbench::kernels::sm90
