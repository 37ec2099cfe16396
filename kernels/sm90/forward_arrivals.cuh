// The keys of a share (kernels::Share) that arrive while a forward kernel for Hopper runs.
#pragma once

#include <cstdint>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/globaltimer.h"
#include "kernels/ptx/ld.h"
#include "kernels/sm90/forward_arguments.cuh"

namespace flashbench::kernels::sm90 {

// What one thread knows of the parts of the keys, which arrive downwards from the last.
class KeyArrivals {
 public:
  // Returns once K and V of the keys from `key` on may be loaded by TMA: a copy engine has written
  // them, and then the number of the run.
  __device__ __forceinline__ void await(const Arguments& a, int key) {
    if (key >= there_from_) return;
    const int part = key / a.part_keys;
    await_part(a.arrived + part, a.run);
    there_from_ = part * a.part_keys;
    ptx::fence_proxy_async_global();
  }

 private:
  static constexpr uint64_t kMostNanoseconds = 30'000'000'000;  // then the launch fails

  static __device__ __forceinline__ void await_part(const unsigned* arrived, unsigned run) {
    if (ptx::ld_acquire_sys(arrived) == run) return;
    const uint64_t start = ptx::globaltimer();
    while (ptx::ld_acquire_sys(arrived) != run) {
      if (ptx::globaltimer() - start > kMostNanoseconds) __trap();
    }
  }

  int there_from_ = INT32_MAX;
};

}  // namespace flashbench::kernels::sm90
