// How the forward kernels for Hopper merge the pieces of a tile (forward_pieces.h).
#pragma once

#include <cstdint>

#include "kernels/ptx/atom.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/tid.h"
#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/forward_shapes.cuh"
#include "kernels/sm90/forward_softmax.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, Config kConfig>
struct MergePieces {
  using Shapes = ForwardShapes<kConfig>;
  using Softmax = ForwardSoftmax<T, kConfig>;
  using Rows = typename Softmax::Rows;
  static constexpr int kOFloats = Shapes::kOFloats;

  // Merges this warp's rows of all pieces of a tile, in their order, so that it does not matter
  // which comes last. Returns whether this is the last piece: `o` and `rows` are then those of the
  // tile, and else of no use.
  static __device__ bool merge(const Pieces& pieces, int piece, int consumer, float (&o)[kOFloats],
                               Rows& rows) {
    constexpr int kWarpFloats = piece_floats(kWarpRows, kConfig.head_dim);
    constexpr int kWarps = kConfig.block_q / kWarpRows, kPieceFloats = kWarps * kWarpFloats;
    static_assert(kWarpFloats == 32 * (kOFloats + 4));
    // Read again, because registers have no room for what follows from it.
    const int thread = ptx::tid_x(), lane = thread % 32, warp = 4 * consumer + thread / 32 % 4;
    const int first = piece - piece % pieces.each;
    float* const sums = pieces.sums + int64_t{first} * kPieceFloats + warp * kWarpFloats + lane;
    float* const own = sums + (piece - first) * kPieceFloats;
#pragma unroll
    for (int i = 0; i < kOFloats; ++i) own[i * 32] = o[i];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      own[(kOFloats + i) * 32] = rows.maximum[i];
      own[(kOFloats + 2 + i) * 32] = rows.sum[i];
    }
    __syncwarp();
    // The counter is at `each` - 1 or above before the first arrives.
    bool last = false;
    if (lane == 0) {
      const auto others = static_cast<unsigned>(pieces.each) - 1;
      unsigned* const arrivals = pieces.arrivals + first * kWarps + warp;
      last = ptx::atom_inc_acq_rel_gpu(arrivals, others) == others - 1;
    }
    last = __any_sync(~0u, last);
    __syncwarp();
    if (!last) return false;
    rows = Rows();
#pragma unroll 1
    for (int other = 0; other < pieces.each; ++other) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float maximum = __ldcg(sums + other * kPieceFloats + (kOFloats + i) * 32);
        rows.maximum[i] = fmaxf(rows.maximum[i], maximum);
      }
    }
#pragma unroll
    for (int i = 0; i < kOFloats; ++i) o[i] = 0;
#pragma unroll 1
    for (int other = 0; other < pieces.each; ++other) {
      const float* const from = sums + other * kPieceFloats;
      float factor[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        factor[i] = ptx::ex2_approx_ftz(__ldcg(from + (kOFloats + i) * 32) -
                                        Softmax::base_of(rows.maximum[i]));
        rows.sum[i] += __ldcg(from + (kOFloats + 2 + i) * 32) * factor[i];
      }
#pragma unroll
      for (int i = 0; i < kOFloats; ++i) o[i] += __ldcg(from + i * 32) * factor[i / 2 % 2];
    }
    return true;
  }
};

}  // namespace flashbench::kernels::sm90
