// Sums of a block of keys of which several thread blocks have a piece each (see
// kernels/common/last_wave.h), in the backward pass's main kernels for Hopper.
#pragma once

#include <cstdint>

#include "kernels/backward/backward.h"
#include "kernels/ptx/atom.h"
#include "kernels/ptx/barrier.h"
#include "kernels/ptx/tid.h"
#include "kernels/sm90/backward_arguments.cuh"

namespace flashbench::kernels::sm90 {

// Threads that store their sums independently of others: a warp, or a warpgroup at a named barrier.
// A warp that is short of registers reads its lane again wherever it needs it.
template <bool kReadsAgain = false>
struct PieceWarp {
  static __device__ unsigned lane() {
    if constexpr (kReadsAgain) return ptx::tid_x() % 32u;
    return threadIdx.x % 32;
  }
  static __device__ bool leads() { return lane() == 0; }
  static __device__ void sync() { __syncwarp(); }
  static __device__ bool any(bool value) {
    value = __any_sync(~0u, value);
    __syncwarp();
    return value;
  }
};
struct PieceWarpgroup {
  int barrier;

  static __device__ unsigned lane() { return threadIdx.x % 32; }
  static __device__ bool leads() { return threadIdx.x % 128 == 0; }
  __device__ void sync() const { ptx::barrier_sync(barrier, 128); }
  __device__ bool any(bool value) const { return !ptx::barrier_and(barrier, 128, !value); }
};

// Adds up `sums` of all pieces of the work, in the order of pieces, so that it does not matter
// which comes last. Of the `kWarps` that sum a piece, this is number `warp`, and `group` calls
// together. Returns whether this is the last piece: `sums` are then those of the whole, and else of
// no use.
template <int kWarps, typename Group, typename Work, int... kFloats>
__device__ __forceinline__ bool adds_up(const BackwardArguments& a, const Work& work, int warp,
                                        const Group& group, float (&... sums)[kFloats]) {
  if constexpr (Work::kMaySplit) {
    const auto [count, first_piece] = work.pieces[0];
    if (count == 1) return true;
    static_assert(kWarps <= backward::kMostPieceWarps);
    constexpr int kWarpFloats = (kFloats + ...) * 32, kPieceFloats = kWarpFloats * kWarps;
    float* const first =
        a.piece_sums + int64_t{first_piece} * kPieceFloats + warp * kWarpFloats + group.lane();
    // Visits all sums and where a piece has them.
    const auto for_each = [&](float* piece, const auto& visit) {
      const auto visit_all = [&]<int kCount>(float(&sum)[kCount]) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) visit(sum[i], piece + i * 32);
        piece += kCount * 32;
      };
      (visit_all(sums), ...);
    };
    for_each(first + work.part * kPieceFloats, [](float sum, float* at) { *at = sum; });
    group.sync();
    bool last = false;
    if (group.leads()) {
      unsigned* const arrivals = a.piece_arrivals + first_piece * backward::kMostPieceWarps + warp;
      const auto others = static_cast<unsigned>(count - 1);
      last = ptx::atom_inc_acq_rel_gpu(arrivals, others) == others;
    }
    if (!group.any(last)) return false;
    for_each(first, [](float& sum, float* at) { sum = __ldcg(at); });
#pragma unroll 1
    for (int piece = 1; piece < count; ++piece) {
      for_each(first + piece * kPieceFloats, [](float& sum, float* at) { sum += __ldcg(at); });
    }
  }
  return true;
}

}  // namespace flashbench::kernels::sm90
