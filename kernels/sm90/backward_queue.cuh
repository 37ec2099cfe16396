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

// One warp takes a work item from a counter, and puts its description, which it computes or finds
// in a list, in a ring in shared memory, where kReaders warps read it. The later it takes the next
// one, the more evenly the thread blocks share the work. `n` counts the items of this thread block
// from 0. All functions are called by whole warps.
template <typename Work, int kReaders, typename Delay>
struct WorkQueue : Barriers<Delay> {
  using Barriers<Delay>::wait, Barriers<Delay>::release;

  static constexpr int kWords = sizeof(Work) / sizeof(int);
  using Place = RingPlace<2>;

  struct Shared {
    alignas(Work) int items[2][kWords];
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

  // Whether a thread block may wait for those that have earlier items. It then takes the first item
  // from the counter, too, so that it waits for none that has yet to start. Else that is its own
  // number, since the kernel before this one, which may still run, resets the counter.
  static constexpr bool kInOrder = Work::kIsBackwards;
  // Where items rotate (see kernels/backward/work.cuh) a thread block waits for those that have
  // later items, too. There are as many thread blocks as items then. Each has the item of its
  // number and takes no other, for which it might wait itself, if the thread block that should have
  // it starts late.
  template <typename Arguments>
  static __device__ bool has_one_item(const Arguments& a) {
    if constexpr (kInOrder) return a.rotation > 0;
    return false;
  }
  template <typename Arguments>
  static __device__ int first_index(const Arguments& a) {
    if (kInOrder && !has_one_item(a)) return take_index(a);
    if constexpr (Work::kIsListed) ptx::griddepcontrol_wait();
    return static_cast<int>(blockIdx.x);
  }

  // Takes the next item's index from the counter. The first lane has it.
  template <typename Arguments>
  static __device__ int take_index(const Arguments& a) {
    if (has_one_item(a)) return a.work_items;  // there is none
    ptx::griddepcontrol_wait();
    const int first = kInOrder ? 0 : static_cast<int>(gridDim.x);
    return lane() == 0 ? first + atomicAdd(a.tickets, 1) : 0;
  }

  // Passes on item `n`, whose index the first lane has. Returns false if there is none.
  template <typename Arguments>
  static __device__ bool pass_on(const Arguments& a, Shared& shared, unsigned n, int index) {
    const Place at(n);
    wait(shared.empty[at.stage], at.parity ^ 1);
    bool exists = false;
    for (bool found = false; !found;) {
      index = __shfl_sync(~0u, index, 0);
      exists = index < a.work_items;
      if (!exists) break;
      const auto item = Work::find(a, index);
      found = item.exists();
      if (!found) index = take_index(a);
      // In place, a description needs few registers.
      if (found && lane() == 0) item.describe(a, shared.items[at.stage]);
    }
    if (lane() == 0) shared.exists[at.stage] = exists;
    release(lane(), shared.full[at.stage]);
    return exists;
  }

  // Takes all items, one whenever a reader asks for it.
  template <typename Arguments>
  static __device__ void take_all(const Arguments& a, Shared& shared) {
    int index = first_index(a);
    for (unsigned n = 0; pass_on(a, shared, n, index); ++n) {
      wait(shared.asked, n & 1);
      index = take_index(a);
    }
  }
  static __device__ void ask(Shared& shared) { release(lane(), shared.asked); }

  // Reads item `n`. Returns false if there is none.
  static __device__ bool next(Shared& shared, unsigned n, Work& work) {
    const Place at(n);
    wait(shared.full[at.stage], at.parity);
    const bool exists = read(shared.exists[at.stage]) != 0;
    work = item(shared, n);
    release(lane(), shared.empty[at.stage]);
    return exists;
  }

  // Item `n`, for the warp that has taken it, and those that it waits for before it takes the next
  // but one.
  static __device__ __forceinline__ Work item(const Shared& shared, unsigned n) {
    int words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = read(shared.items[Place(n).stage][i]);
    Work work;
    memcpy(&work, words, sizeof(Work));
    return work;
  }

 private:
  // The lane that arrives reads alone. The shuffle tells the compiler that all have the same.
  static __device__ __forceinline__ int read(const int& from) {
    return __shfl_sync(~0u, lane() == 0 ? from : 0, 0);
  }
  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
};

}  // namespace flashbench::kernels::sm90
