// Where the rows of Q, K and V of a share (kernels::Share) are, some of which arrive while a
// forward kernel for Hopper runs.
#pragma once

#include <cstdint>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/globaltimer.h"
#include "kernels/ptx/ld.h"
#include "kernels/sm90/forward_arguments.cuh"

namespace flashbench::kernels::sm90 {

// Rows from `from` to the one that was asked for are in the GPU's own tensors, or have arrived. A
// warp that loads blocks downwards asks again below `from`: its instructions delay the consumers.
struct RowPlace {
  bool own = false;
  int from = INT32_MAX;
};

// What one thread knows of the parts, which arrive in order.
class ShareInputs {
 public:
  __device__ __forceinline__ void begin_head(const Arguments& a, int kv_head) {
    last_of_head_ = (kv_head / a.part_heads + 1) * a.row_parts - 1;
  }

  // Returns once TMA may load this row of the head.
  __device__ __forceinline__ RowPlace locate(const Arguments& a, int row) {
    RowPlace place;
    place.from = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const RowSpan own = a.in_place[i];
      if (own.first <= row && row < own.end) return {true, own.first};
      if (own.end <= row) place.from = max(place.from, own.end);
    }
    const int row_part = row / a.part_rows, part = last_of_head_ - row_part;
    if (part > last_) {
      await_part(a.arrived + part, a.run);
      ptx::fence_proxy_async_global();
      last_ = part;
    }
    place.from = max(place.from, row_part * a.part_rows);
    return place;
  }

 private:
  static constexpr uint64_t kMostNanoseconds = 30'000'000'000;  // then the launch fails

  // A copy engine writes the rows, and then the number of the run.
  static __device__ __forceinline__ void await_part(const unsigned* arrived, unsigned run) {
    if (ptx::ld_acquire_sys(arrived) == run) return;
    const uint64_t start = ptx::globaltimer();
    while (ptx::ld_acquire_sys(arrived) != run) {
      if (ptx::globaltimer() - start > kMostNanoseconds) __trap();
    }
  }

  int last_ = -1;         // part that is known to be there
  int last_of_head_ = 0;  // part, which has the first rows
};

}  // namespace flashbench::kernels::sm90
