// The works of a thread block of the backward pass's main kernel for Hopper that stays: one whose
// place no other thread block takes, since it computes one work after the other until none is left.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/tid.h"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// A thread block's first work has its own number. Each further one is the first that no thread
// block has taken. One warp takes works, ahead of their use, and works out what they consist of,
// which takes thousands of clocks; kReaders other warps read that from a ring in shared memory.
//
// All functions are called by whole warps. `n` counts the thread block's works from 0.
template <typename Work, int kReaders, typename Delay>
struct WorkQueue : Barriers<Delay> {
  using Barriers<Delay>::wait, Barriers<Delay>::release;

  static constexpr int kWords = sizeof(Work) / sizeof(int);
  using Place = RingPlace<2>;

  struct Shared {
    int works[2][kWords];
    int exists[2];
    uint64_t full[2], empty[2];
  };

  static __device__ void initialise_barriers(Shared& shared) {
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.empty[i]), kReaders);
    }
  }

  template <typename Arguments>
  static __device__ Work first(const Arguments& a) {
    return Work(a, static_cast<int>(blockIdx.x));
  }

  // Takes the work after work `n` and passes it on. Returns false, and leaves `work` as it is, if
  // there is none. The kernel before this one has to be complete: it sets the tickets to 0.
  template <typename Arguments>
  static __device__ bool take(const Arguments& a, Shared& shared, unsigned n, Work& work) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int index = 0;
    if (lane == 0) index = ptx::nctaid_x() + atomicAdd(a.tickets, 1);
    index = __shfl_sync(~0u, index, 0);
    const bool exists = index < a.works;
    if (exists) work = Work(a, index);
    const Place at(n);
    wait(shared.empty[at.stage], at.parity ^ 1);
    if (lane == 0) {
      shared.exists[at.stage] = exists;
      memcpy(shared.works[at.stage], &work, sizeof(Work));
    }
    release(lane, shared.full[at.stage]);
    return exists;
  }

  // Reads the work after work `n`. Returns false if there is none.
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
