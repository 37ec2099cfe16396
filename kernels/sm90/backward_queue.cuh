// How a persistent thread block of the backward pass's main kernel for Hopper gets its work items.
// It computes one after the other, until none is left.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// One thread takes a work item from a counter, computes its description, and puts this in a ring in
// shared memory, where kReaders warps read it. The reader that is furthest ahead asks for the next
// item: the later a thread block takes one, the more evenly all thread blocks share the work. `n`
// counts the items of this thread block from 0.
template <typename Work, int kReaders, typename Delay>
struct WorkQueue : Barriers<Delay> {
  using Barriers<Delay>::wait, Barriers<Delay>::arrive, Barriers<Delay>::release;

  static constexpr int kWords = sizeof(Work) / sizeof(int);
  using Place = RingPlace<2>;

  struct Shared {
    int items[2][kWords];
    int exists[2];
    uint64_t full[2], empty[2], asked;
  };

  static __device__ void initialise_barriers(Shared& shared) {
    ptx::mbarrier_init(ptx::shared_address(&shared.asked), 1);
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.empty[i]), kReaders);
    }
  }

  // Takes the thread block's items and passes them on. Called by one thread. The first item has the
  // thread block's own number: the kernel before this one, which may still run, resets the counter.
  template <typename Arguments>
  static __device__ void take_all(const Arguments& a, Shared& shared) {
    int index = static_cast<int>(blockIdx.x);
    for (unsigned n = 0;; ++n) {
      const Place at(n);
      wait(shared.empty[at.stage], at.parity ^ 1);
      const bool exists = index < a.work_items;
      if (exists) {
        const Work work(a, index);
        memcpy(shared.items[at.stage], &work, sizeof(Work));
      }
      shared.exists[at.stage] = exists;
      arrive(shared.full[at.stage]);
      if (!exists) return;
      wait(shared.asked, n & 1);
      ptx::griddepcontrol_wait();
      index = static_cast<int>(gridDim.x) + atomicAdd(a.tickets, 1);
    }
  }

  // Asks for one more item. Called by a whole warp.
  static __device__ void ask(Shared& shared) {
    release(static_cast<int>(threadIdx.x) % 32, shared.asked);
  }

  // Reads item `n`. Returns false if there is none. Called by whole warps.
  static __device__ bool next(Shared& shared, unsigned n, Work& work) {
    const Place at(n);
    wait(shared.full[at.stage], at.parity);
    // The shuffles tell the compiler that all lanes read the same.
    const bool exists = __shfl_sync(~0u, shared.exists[at.stage], 0) != 0;
    int words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = __shfl_sync(~0u, shared.items[at.stage][i], 0);
    memcpy(&work, words, sizeof(Work));
    release(static_cast<int>(threadIdx.x) % 32, shared.empty[at.stage]);
    return exists;
  }
};

}  // namespace flashbench::kernels::sm90
