// The copies of a persistent thread block of the backward pass's main kernel for Hopper (see
// backward_queue.cuh). One warp loads Q and dO, one loads K and V, and one stores dK and dV and, at
// head_dim 128, adds dQ. The consumers therefore find the next work item loaded, and do not wait
// for the stores of the last.
#pragma once

#include <cstdint>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_dq_staging.cuh"
#include "kernels/sm90/backward_loads.cuh"
#include "kernels/sm90/backward_shapes.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, BackwardConfig kConfig, typename Delay>
struct BackwardCopies : BackwardShapes<kConfig, Delay>, Barriers<Delay> {
  using Shapes = BackwardShapes<kConfig, Delay>;
  using Shapes::kStages, Shapes::kBlockKv, Shapes::kPanels, Shapes::kKvBytes, Shapes::kKvPanelBytes,
      Shapes::kVBuffers, Shapes::kDqTransposed;
  using typename Shapes::Shared, typename Shapes::Work, typename Shapes::Queue,
      typename Shapes::Rows;
  using Barriers<Delay>::wait, Barriers<Delay>::release;
  using Loads = BackwardBlockLoads<Shapes>;
  using DqStaging = BackwardDqStaging<T, kConfig, Delay>;

  static __device__ __forceinline__ bool leads() { return threadIdx.x % 32 == 0; }

  // Loads Q and dO of all work items, and asks for the next one.
  static __device__ void load_queries(const BackwardArguments& a, Shared& shared) {
    ptx::griddepcontrol_wait();
    Work work;
    unsigned block = 0;  // counts through all items
    for (unsigned n = 0; Queue::next(*shared.queue, n, work); ++n) {
      Loads loads(a, shared, work);
      for (const unsigned end = block + work.steps; block < end; ++block) {
        const RingPlace<kStages> at(block);
        wait(shared.q_empty[at.stage], at.parity ^ 1);
        if (leads()) loads.q(at.stage);
        wait(shared.d_o_empty[at.stage], at.parity ^ 1);
        if (leads()) loads.d_o(at.stage);
        __syncwarp();
        loads.step.advance(work);
      }
      Queue::ask(*shared.queue);
    }
  }

  static __device__ void load_keys(const BackwardArguments& a, Shared& shared) {
    Work work;
    for (unsigned n = 0; Queue::next(*shared.queue, n, work); ++n) {
      const RingPlace<2> at(n);
      wait(shared.kv_empty[at.stage], at.parity ^ 1);
      const Loads loads(a, shared, work);
      if (leads()) loads.k(at.stage);
      if constexpr (kDqTransposed) wait(shared.v_empty[0], n & 1 ^ 1);
      if (leads()) loads.v(n % kVBuffers);
      __syncwarp();
    }
  }

  // Stores dK and dV, which the consumers have staged, unless other thread blocks share the keys;
  // with kDqTransposed, adds dQ before.
  static __device__ void store_gradients(const BackwardArguments& a, Shared& shared) {
    Work work;
    unsigned blocks = 0;  // of all items before
    if constexpr (kDqTransposed) DqStaging::begin();
    for (unsigned n = 0; Queue::next(*shared.queue, n, work); ++n) {
      const RingPlace<2> at(n);
      if constexpr (kDqTransposed) {
        wait(shared.k_full[at.stage], at.parity);
        DqStaging::add_all(a, shared, work, shared.k + at.stage * kKvBytes, blocks);
        if (!a.adds_keys) DqStaging::store_dv(a, shared, work, n);
      }
      wait(shared.kv_staged[at.stage], at.parity);
      if (!a.adds_keys && leads()) {
        if constexpr (!kDqTransposed) {
          store(a.dv[0], Rows{a}.key_gradients(work, a.dv_steps), shared, shared.v, n, work);
        }
        store(a.dk[0], Rows{a}.key_gradients(work, a.dk_steps), shared, shared.k, n, work);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read();
      }
      __syncwarp();
      release(static_cast<int>(threadIdx.x) % 32, shared.kv_empty[at.stage]);
    }
  }

 private:
  static __device__ __forceinline__ void store(const CUtensorMap& tensor, const auto& rows,
                                               const Shared& shared, const char* staged, unsigned n,
                                               const Work& work) {
    store_rows<kPanels, kKvPanelBytes>(tensor, rows, work.first_key, kBlockKv,
                                       ptx::shared_address(staged) + n % 2 * kKvBytes,
                                       [&](int row) { return Shapes::stores(shared, n % 2, row); });
  }
};

}  // namespace flashbench::kernels::sm90
