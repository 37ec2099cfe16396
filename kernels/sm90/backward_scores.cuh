// From S and dP to P and dS, in the registers of a consumer of the backward pass's main kernel for
// Hopper.
#pragma once

#include "kernels/ptx/ex2.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_products.cuh"
#include "kernels/sm90/backward_shapes.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, BackwardConfig kConfig, typename Delay>
struct BackwardScores : BackwardShapes<kConfig, Delay> {
  using Shapes = BackwardShapes<kConfig, Delay>;
  using Shapes::kBlockQ, Shapes::kSFloats;
  using typename Shapes::Work, typename Shapes::Block;

  using Part = typename BackwardProducts<T, kConfig, Delay>::Part;

  // The mask of a thread's part of S^T. In the thread's row h (0 or 1), column c is visible if
  // from[h] <= c < end[h]. Columns count from the thread's first. All rows have the same end unless
  // there are windows.
  struct Visible {
    static constexpr int kEnds = Work::kKnowsWindows ? 2 : 1;
    int from[2], end[kEnds];

    __device__ Visible(const BackwardArguments& a, const Work& work, const Part& part,
                       const Block& block) {
      const int first = block.first_query + part.first_query;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = work.first_key + part.warp_key + part.lane / 4 + 8 * half;
        from[half] = key < work.key_end(a) ? key - work.diagonal(a) - first : kBlockQ;
        if constexpr (Work::kKnowsWindows) {
          end[half] = min(work.q_len(a), key - work.first_from(a) + 1) - first;
        }
      }
      if constexpr (!Work::kKnowsWindows) end[0] = work.q_len(a) - first;
    }
    __device__ bool operator()(int i) const {
      const int column = i / 4 * 8 + i % 2, half = i / 2 % 2;
      return column >= from[half] && column < end[half % kEnds];
    }
    // Selects rather than multiplies by 0: a masked element may be NaN.
    __device__ void select(float (&x)[kSFloats]) const {
#pragma unroll
      for (int i = 0; i < kSFloats; ++i) x[i] = (*this)(i) ? x[i] : 0;
    }
  };

  // L or D of a thread's queries, two for every 8 columns of S^T. They are read from shared memory
  // where they are used.
  struct InSharedMemory {
    const float* of_block;
    int first_query;
    __device__ __forceinline__ float2 operator[](int i) const {
      return *reinterpret_cast<const float2*>(&of_block[i * 8 + first_query]);
    }
  };
  // The same, read in advance.
  struct InRegisters {
    float values[kSFloats / 2];
    __device__ __forceinline__ explicit InRegisters(const InSharedMemory& from) {
#pragma unroll
      for (int i = 0; i < kSFloats / 4; ++i) {
        const float2 two = from[i];
        values[2 * i] = two.x, values[2 * i + 1] = two.y;
      }
      ptx::keep_here(values);
    }
    __device__ __forceinline__ float2 operator[](int i) const {
      return {values[2 * i], values[2 * i + 1]};
    }
  };

  // Replaces S by P. `logsumexp` is in base 2.
  template <typename Statistic>
  static __device__ __forceinline__ void exponentiate(float (&s)[kSFloats],
                                                      const Statistic& logsumexp,
                                                      float scale_log2) {
#pragma unroll
    for (int i = 0; i < kSFloats; i += 4) {
      const float2 l = logsumexp[i / 4];
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        s[i + x] = ptx::ex2_approx_ftz(__fmaf_rn(s[i + x], scale_log2, x % 2 == 0 ? -l.x : -l.y));
      }
    }
  }

  // Replaces dP by dS.
  template <typename Statistic>
  static __device__ __forceinline__ void multiply_by(const float (&p)[kSFloats],
                                                     float (&dp)[kSFloats], const Statistic& d) {
#pragma unroll
    for (int i = 0; i < kSFloats; i += 4) {
      const float2 row = d[i / 4];
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        dp[i + x] = p[i + x] * (dp[i + x] - (x % 2 == 0 ? row.x : row.y));
      }
    }
  }
};

}  // namespace flashbench::kernels::sm90
