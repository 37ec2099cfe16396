// The online softmax of the forward kernels for Hopper, in a thread's registers: from scores to P.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/forward_shapes.cuh"
#include "kernels/sm90/forward_tiles.cuh"

namespace flashbench::kernels::sm90 {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The running maximum in the exponents may lag behind the true maximum as long as a thread's sum of
// P over a block of keys is at most kLargestSum; P is then far below the largest fp16. If the sum
// is larger, the block's own maximum is computed; O and the sums are rescaled only if it exceeds
// the running maximum by more than kRescaleThreshold (a power of two). If the next block is
// similar, its sum is then small enough.
inline constexpr float kLargestSum = 256;
inline constexpr float kRescaleThreshold = 3;

template <typename T, Config kConfig>
struct ForwardSoftmax {
  using Tiles = ForwardTiles<kConfig>;
  using Tile = typename Tiles::Tile;
  using Shapes = ForwardShapes<kConfig>;
  static constexpr bool kByRequest = kConfig.by_request;
  static constexpr int kBlockKv = kConfig.block_kv;
  static constexpr int kSFloats = Shapes::kSFloats, kOFloats = Shapes::kOFloats;
  static constexpr int kPSteps = Shapes::kPSteps;

  // The online softmax state of a thread's two rows; `sum` covers only this thread's columns.
  struct Rows {
    float maximum[2] = {-kInfinity, -kInfinity};
    float sum[2] = {0, 0};
  };

  // Sets the scores of keys that a row does not see to -infinity. `visible` counts from this lane's
  // first key.
  static __device__ void mask(float (&s)[kSFloats], const int (&visible)[2]) {
#pragma unroll
    for (int i = 0; i < kSFloats; ++i) {
      if (i / 4 * 8 + i % 2 >= visible[i / 2 % 2]) s[i] = -kInfinity;
    }
  }

  // The same of the keys before `first`, where a window begins.
  static __device__ void mask_before(float (&s)[kSFloats], const int (&first)[2]) {
#pragma unroll
    for (int i = 0; i < kSFloats; ++i) {
      if (i / 4 * 8 + i % 2 < first[i / 2 % 2]) s[i] = -kInfinity;
    }
  }

  // Masks a block for this thread's rows.
  static __device__ __forceinline__ void mask_block(const Arguments& a, const Tile& tile,
                                                    int first_row, int block,
                                                    float (&s)[kSFloats]) {
    const int first = block * kBlockKv + static_cast<int>(threadIdx.x) % 4 * 2;
    if constexpr (kByRequest) {
      const int queries[2] = {Tiles::packed_row(a, tile, first_row).query,
                              Tiles::packed_row(a, tile, first_row + 8).query};
      mask(s, {Tiles::end_key(tile, queries[0]) - first, Tiles::end_key(tile, queries[1]) - first});
      if constexpr (Tiles::kHasWindows) {
        const int begins[2] = {Tiles::first_key(tile, queries[0]),
                               Tiles::first_key(tile, queries[1])};
        if (begins[1] > block * kBlockKv) mask_before(s, {begins[0] - first, begins[1] - first});
      }
    } else {
      mask(s, {a.visible_keys(first_row) - first, a.visible_keys(first_row + 8) - first});
    }
  }

  // Scales scores to the softmax's exponents in base 2.
  static __device__ void scale(float (&s)[kSFloats], float factor) {
#pragma unroll
    for (int i = 0; i < kSFloats; ++i) s[i] = __fmul_rn(s[i], factor);
  }

  // If any maximum has grown too much, raises the maxima to those of S, in base 2, rescales the
  // sums, and calls `rescale_o` with the factors of the rows.
  template <typename RescaleO>
  static __device__ void raise_maximum(const float (&s)[kSFloats], Rows& rows,
                                       const RescaleO& rescale_o) {
    float maximum[2];
    bool grown = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float m[2] = {s[2 * i], s[2 * i + 1]};
#pragma unroll
      for (int j = 4; j < kSFloats; j += 4) {
        m[0] = fmaxf(m[0], s[j + 2 * i]);
        m[1] = fmaxf(m[1], s[j + 2 * i + 1]);
      }
      m[0] = fmaxf(m[0], m[1]);
      m[0] = fmaxf(m[0], __shfl_xor_sync(~0u, m[0], 1));
      m[0] = fmaxf(m[0], __shfl_xor_sync(~0u, m[0], 2));
      maximum[i] = fmaxf(rows.maximum[i], m[0]);
      // Also true for NaN, the difference in a row that has seen no key so far.
      grown |= !(maximum[i] - rows.maximum[i] <= kRescaleThreshold);
    }
    if (!__any_sync(~0u, grown)) return;
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      factor[i] = ptx::ex2_approx_ftz(rows.maximum[i] - base_of(maximum[i]));
      rows.sum[i] *= factor[i];
      rows.maximum[i] = maximum[i];
    }
    rescale_o(factor);
  }
  static __device__ void rescale(float (&o)[kOFloats], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kOFloats; ++i) o[i] *= factor[i / 2 % 2];
  }

  // The base of the exponents: the maximum, or 0 for a row that has seen no key, whose P must be 0
  // and not NaN.
  static __device__ float base_of(float maximum) {
    return maximum == -kInfinity ? 0 : maximum;
  }

  // P = 2^(S - base); if not kScaled, S is scaled here first. Adds the row sums of P to `sum`. The
  // accumulators, rounded, have the layout of the A operand.
  template <bool kScaled>
  static __device__ void exponentiate(const float (&s)[kSFloats], uint32_t (&p)[kPSteps][4],
                                      const float (&base)[2], float (&sum)[2], float scale_log2) {
#pragma unroll
    for (int i = 0; i < kSFloats; i += 2) {
      const int row = i / 2 % 2;
      float x[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        x[j] = ptx::ex2_approx_ftz(kScaled ? s[i + j] - base[row]
                                           : __fmaf_rn(s[i + j], scale_log2, -base[row]));
        sum[row] += x[j];
      }
      p[i / 8][i / 2 % 4] = ptx::cvt_rn_x2<T>(x[0], x[1]);
    }
  }

  // Computes P relative to the running maxima, without waiting for the block's own maxima. Returns
  // false and changes nothing else if a sum shows that they lag behind too far, or that the
  // exponents may all be 0. In that case the multiply-add of the exponent rounds differently than
  // the maximum was rounded, which would leave an error of 1e-7 in results that are exact for equal
  // scores.
  static __device__ bool try_maximum(const float (&s)[kSFloats], uint32_t (&p)[kPSteps][4],
                                     Rows& rows, float scale_log2) {
    constexpr float kOnes = kSFloats / 2, kTrace = kOnes * 0x1p-16f;
    static_assert(kOnes * 8 <= kLargestSum);  // 2^kRescaleThreshold
    float sum[2] = {0, 0};
    exponentiate<false>(s, p, rows.maximum, sum, scale_log2);
    bool good = true;  // also false for a NaN sum, and for a row without a maximum
#pragma unroll
    for (float x : sum) good &= x <= kLargestSum && fabsf(x - kOnes) > kTrace;
    if (!__all_sync(~0u, good)) return false;
    rows.sum[0] += sum[0];
    rows.sum[1] += sum[1];
    return true;
  }
};

}  // namespace flashbench::kernels::sm90
