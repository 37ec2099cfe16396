// The works of a thread block of the backward pass's main kernel for Hopper that stays: one whose
// place no other thread block takes, since it computes one work after the other until none is left.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// One thread takes works and finds out what they consist of, which takes thousands of clocks.
// kReaders warps read that from a ring in shared memory. One of them, which is ahead of the others,
// asks for the next work: the later one is taken, the more evenly works are shared. `n` counts the
// thread block's works from 0.
template <typename Work, int kReaders, typename Delay>
struct WorkQueue : Barriers<Delay> {
  using Barriers<Delay>::wait, Barriers<Delay>::arrive, Barriers<Delay>::release;

  static constexpr int kWords = sizeof(Work) / sizeof(int);
  using Place = RingPlace<2>;

  struct Shared {
    int works[2][kWords];
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

  // Takes all works of the thread block, one after the other, and passes them on: the first is that
  // of its own number, since only the kernel before this one sets the tickets to 0. Called by one
  // thread.
  template <typename Arguments>
  static __device__ void take_all(const Arguments& a, Shared& shared) {
    int index = static_cast<int>(blockIdx.x);
    for (unsigned n = 0;; ++n) {
      const Place at(n);
      wait(shared.empty[at.stage], at.parity ^ 1);
      const bool exists = index < a.works;
      if (exists) {
        const Work work(a, index);
        memcpy(shared.works[at.stage], &work, sizeof(Work));
      }
      shared.exists[at.stage] = exists;
      arrive(shared.full[at.stage]);
      if (!exists) return;
      wait(shared.asked, n & 1);
      ptx::griddepcontrol_wait();
      index = static_cast<int>(gridDim.x) + atomicAdd(a.tickets, 1);
    }
  }

  // Asks for one more work. Called by a whole warp.
  static __device__ void ask(Shared& shared) {
    release(static_cast<int>(threadIdx.x) % 32, shared.asked);
  }

  // Reads work `n`. Returns false if there is none. Called by whole warps.
  static __device__ bool next(Shared& shared, unsigned n, Work& work) {
    const Place at(n);
    wait(shared.full[at.stage], at.parity);
    // The shuffles tell the compiler that all lanes read the same.
    const bool exists = __shfl_sync(~0u, shared.exists[at.stage], 0) != 0;
    int words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = __shfl_sync(~0u, shared.works[at.stage][i], 0);
    memcpy(&work, words, sizeof(Work));
    release(static_cast<int>(threadIdx.x) % 32, shared.empty[at.stage]);
    return exists;
  }
};

}  // namespace flashbench::kernels::sm90
