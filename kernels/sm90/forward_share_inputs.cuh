// Where the rows of Q, K and V of a share (kernels::Share) are, some of which are fetched while a
// forward kernel for Hopper runs.
#pragma once

#include <cstdint>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/ld.h"
#include "kernels/sm90/forward_arguments.cuh"

namespace flashbench::kernels::sm90 {

// Rows from `from` to the one that was asked for are in the tensors of all GPUs, or have been
// fetched. A warp that loads blocks downwards asks again below `from`: its instructions delay the
// consumers.
struct RowPlace {
  bool in_place = false;
  int from = INT32_MAX;
};

// What one thread knows of the parts.
class ShareInputs {
 public:
  // Before the first row of a K/V head of a request.
  __device__ __forceinline__ void begin_head(const Arguments& a, int batch, int kv_head) {
    const int head = batch * a.fetch.kv_heads.divisor() + kv_head;
    last_of_head_ = (head / a.fetch.part_heads + 1) * a.fetch.row_parts.divisor() - 1;
    if (a.fetch.slices == 0) there_ = kAll;
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
    const int row_part = a.fetch.part_rows.quotient(row), part = last_of_head_ - row_part;
    if ((there_ >> part & 1) == 0) {
      while (ptx::ld_acquire_gpu(a.fetch.there + part) < a.fetch.part_slices.divisor()) {
      }
      ptx::fence_proxy_async_global();
      there_ |= uint64_t{1} << part;
    }
    // Earlier rows follow in the next parts.
    const int parts = __ffsll(static_cast<long long>(~(there_ >> part))) - 1;
    place.from = max(place.from, (row_part + 1 - parts) * a.fetch.part_rows.divisor());
    return place;
  }

 private:
  static constexpr uint64_t kAll = ~uint64_t{0} >> 1;
  static_assert(Fetch::kMostParts == 63);
  uint64_t there_ = 0;    // bit i: part i is known to be there
  int last_of_head_ = 0;  // part, which has the first rows
};

}  // namespace flashbench::kernels::sm90
