// Where requests differ in length: the kernel before the backward pass's other kernels for Hopper,
// which lists the work items of the main kernel. A thread block that found its own item would do so
// for several microseconds before it could load anything, and a multiprocessor has no room for
// another one meanwhile.
#pragma once

#include "kernels/backward/backward.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/sm90/backward_arguments.cuh"

namespace flashbench::kernels::sm90 {

inline constexpr int kListingThreads = 128;

// A warp finds an item.
template <typename Work>
__global__ void __launch_bounds__(kListingThreads)
    backward_list_work(const __grid_constant__ BackwardArguments a) {
  static_assert(sizeof(Work) == backward::kRequestWorkBytes);
  ptx::griddepcontrol_launch_dependents();
  const int index = static_cast<int>(blockIdx.x * kListingThreads + threadIdx.x) / 32;
  if (index >= a.work_items) return;
  const Work found = Work::look_up(a, index);
  if (threadIdx.x % 32 == 0) Work::in_list(a, index) = found;
}

}  // namespace flashbench::kernels::sm90
