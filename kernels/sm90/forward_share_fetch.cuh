// How a forward kernel for Hopper fetches the rows that other GPUs have of a share
// (kernels::Share): the warps of the producer that load nothing copy them. They take slices from a
// counter, so that what some thread block waits for is copied whichever thread blocks run.
#pragma once

#include <cstdint>

#include "kernels/ptx/ld.h"
#include "kernels/ptx/red.h"
#include "kernels/ptx/st.h"
#include "kernels/ptx/tid.h"
#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <int kHeadDim, typename Delay>
struct ShareFetch {
  static constexpr int kLanesOfRow = kHeadDim / 8, kRowsAtOnce = 32 / kLanesOfRow;

  static __device__ void run(const Arguments& a) {
    const Fetch& fetch = a.fetch;
    const auto take = [&] { return ptx::tid_x() % 32 == 0 ? atomicAdd(fetch.taken, 1) : 0; };
    int next = take();
    while (true) {
      const int slice = __shfl_sync(~0u, next, 0);
      if (slice >= fetch.slices) return;
      LaneRows rows = rows_of_slice(a, slice);
      next = take();  // arrives while these are copied
      copy(rows);
      Delay::before_barrier();
      __syncwarp();
      if (ptx::tid_x() % 32 == 0)
        ptx::red_release_gpu_add(fetch.there + fetch.part_slices.quotient(slice), 1);
    }
  }

 private:
  // A word of each kRowsAtOnce-th row.
  struct LaneRows {
    const uint4* from;
    uint4* to;
    int from_step, to_step;
    int count;  // of rows from the first of these on; 0 or less if there is nothing to copy
  };

  // The slices of the same rows of all heads follow each other. The first heads that go with a K/V
  // head are its own of K and of V, and the others those of Q.
  static __device__ LaneRows rows_of_slice(const Arguments& a, int slice) {
    const Fetch& fetch = a.fetch;
    const int part = fetch.part_slices.quotient(slice),
              of_part = fetch.part_slices.remainder(slice);
    const int row_part = fetch.row_parts.divisor() - 1 - fetch.row_parts.remainder(part);
    const int first = (row_part + 1) * fetch.part_rows.divisor() -
                      (fetch.across_slices.quotient(of_part) + 1) * Fetch::kSliceRows;
    const int head = fetch.row_parts.quotient(part) * fetch.part_heads +
                     fetch.tensor_heads.quotient(fetch.across_slices.remainder(of_part));
    const unsigned lane = static_cast<unsigned>(ptx::tid_x()) % 32;
    const int row = first + static_cast<int>(lane / kLanesOfRow);
    const int column = static_cast<int>(lane % kLanesOfRow);
    if (head >= fetch.heads || a.has_in_place(first) || column >= fetch.row_words) return {};

    const int tensor = fetch.tensor_heads.remainder(slice);
    const Fetch::Tensor& t = fetch.tensors[min(tensor, 2)];
    const int batch = fetch.kv_heads.quotient(head), kv_head = fetch.kv_heads.remainder(head);
    const int head_of_batch = tensor < 2 ? kv_head : kv_head * a.heads_per_kv_head + tensor - 2;
    return {
        t.from + batch * t.from_batch + head_of_batch * t.from_head + row * int64_t{t.from_row} +
            column,
        t.to + batch * t.to_batch + head_of_batch * t.to_head + row * int64_t{t.to_row} + column,
        kRowsAtOnce * t.from_row, kRowsAtOnce * t.to_row,
        min(first + Fetch::kSliceRows, fetch.rows) - row};
  }

  static __device__ __forceinline__ void copy(LaneRows rows) {
    constexpr int kTogether = 4;  // loads, because each takes as long as a link
#pragma unroll 1
    for (; rows.count > 0; rows.count -= kTogether * kRowsAtOnce) {
      uint4 words[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (i * kRowsAtOnce < rows.count) words[i] = ptx::ld_no_allocate_v4(rows.from);
        rows.from = step(rows.from, rows.from_step);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (i * kRowsAtOnce < rows.count) ptx::st_v4(rows.to, words[i]);
        rows.to = step(rows.to, rows.to_step);
      }
    }
  }

  // Keeps the compiler from computing all addresses first, for which there are no registers.
  template <typename Word>
  static __device__ __forceinline__ Word* step(Word* at, int words) {
    at += words;
    asm volatile("" : "+l"(at));
    return at;
  }
};

}  // namespace flashbench::kernels::sm90
