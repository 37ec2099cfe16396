// Rounds bf16 Q, K and V to e4m3 for forward_e4m3.cuh, and transposes V (transpose_v.cuh). The
// values are bit for bit those of inputs/quantize.h. A thread block has 128 rows of one head, a
// thread 32 elements.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <limits>

#include "kernels/ptx/cvt.h"
#include "kernels/sm90/transpose_v.cuh"

namespace flashbench::kernels::sm90 {

inline constexpr int kQuantizedRows = kTransposedKeys;  // of a thread block
inline constexpr int kThreadElements = 32;

__host__ __device__ constexpr int quantizing_threads(int head_dim) {
  return head_dim * kQuantizedRows / kThreadElements;
}

// From [batch, heads, rows, head_dim], strides in elements. Heads share a factor if `one_factor`,
// else each has its own; amax and descales have one element for each.
struct QuantizeArguments {
  const __nv_bfloat16* from;
  int64_t batch_stride, head_stride, row_stride;
  uint8_t* to;     // of Q and K dense; of V as TransposeArguments::to
  unsigned* amax;  // the bits of a float, at first 0
  float* descales;
  int heads, rows, row_blocks;
  bool one_factor;
  uint32_t signs[8];  // bit c % 32 of word c / 32: whether column c is negated before the rotation
};

// The place of a thread block in its grid.
struct QuantizedBlock {
  int head, first_row, factor;

  __device__ explicit QuantizedBlock(const QuantizeArguments& a)
      : head(static_cast<int>(blockIdx.x) / a.row_blocks),
        first_row(static_cast<int>(blockIdx.x) % a.row_blocks * kQuantizedRows),
        factor(a.one_factor ? 0 : head) {}

  __device__ const uint4* row(const QuantizeArguments& a, int i) const {
    return reinterpret_cast<const uint4*>(a.from + head / a.heads * a.batch_stride +
                                          head % a.heads * a.head_stride + i * a.row_stride);
  }
};

inline __device__ void unpack(const uint4& packed, float* x) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000);
  }
}

inline constexpr float kLargestE4m3 = 448, kLeastFactor = std::numeric_limits<float>::min();

inline __device__ float descale_of(unsigned amax_bits) {
  const float amax = __uint_as_float(amax_bits);
  if (amax == 0) return 1;
  return isinf(amax) ? __int_as_float(0x7FFFFFFF) : fmaxf(amax / kLargestE4m3, kLeastFactor);
}

// Divides by the factor of a thread block, rounded to nearest as a division is.
class Quotient {
 public:
  // Called by all threads; the first thread of the tensor's or head's first block stores the
  // factor.
  __device__ Quotient(const QuantizeArguments& a, const QuantizedBlock& block)
      : divisor_(descale_of(a.amax[block.factor])), inverse_(1 / divisor_) {
    if (threadIdx.x == 0 && block.first_row == 0) a.descales[block.factor] = divisor_;
  }
  __device__ float operator()(float x) const {
    const float quotient = x * inverse_;
    return __fmaf_rn(__fmaf_rn(-quotient, divisor_, x), inverse_, quotient);
  }

 private:
  float divisor_, inverse_;
};

// Multiplies a row by a Hadamard matrix. The row belongs to kLanes neighbouring lanes; this one has
// columns 8 (lane + kLanes i) to 8 (lane + kLanes i) + 7 in x[8 i] to x[8 i + 7]. Columns are added
// in the order of their distance, as on the host.
template <int kLanes>
__device__ void rotate(float (&x)[kThreadElements]) {
  const auto add_within = [&](int distance) {
#pragma unroll
    for (int i = 0; i < kThreadElements; ++i) {
      if ((i & distance) != 0) continue;
      const float sum = x[i] + x[i + distance];
      x[i + distance] = x[i] - x[i + distance];
      x[i] = sum;
    }
  };
  add_within(1);
  add_within(2);
  add_within(4);
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const float sign = (threadIdx.x & distance) != 0 ? -1.F : 1.F;
#pragma unroll
    for (float& each : x) each = __fmaf_rn(sign, each, __shfl_xor_sync(~0u, each, distance));
  }
  add_within(8);
  add_within(16);
}

// A thread's part of a row of Q, K or V; 0 behind the last row.
template <int kHeadDim, bool kRotated>
__device__ void load_part(const QuantizeArguments& a, const QuantizedBlock& block, int row,
                          float (&x)[kThreadElements]) {
  constexpr int kLanes = kHeadDim / kThreadElements;  // of a row
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4 packed =
        row < a.rows ? __ldg(block.row(a, row) + lane + kLanes * i) : uint4{0, 0, 0, 0};
    unpack(packed, x + 8 * i);
  }
  if constexpr (kRotated) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * (lane + kLanes * i);
      const uint32_t signs = a.signs[column / 32] >> column % 32;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        x[8 * i + j] = __uint_as_float(__float_as_uint(x[8 * i + j]) ^ (signs >> j & 1) << 31);
      }
    }
    rotate<kLanes>(x);
  }
}

// Finds the largest magnitudes. A NaN counts in none.
template <int kHeadDim, bool kRotated>
__global__ void __launch_bounds__(quantizing_threads(kHeadDim))
    amax_kernel(const __grid_constant__ QuantizeArguments a) {
  const QuantizedBlock block(a);
  const int row = block.first_row + static_cast<int>(threadIdx.x) / (kHeadDim / kThreadElements);
  float x[kThreadElements];
  load_part<kHeadDim, kRotated>(a, block, row, x);
  float largest = 0;
#pragma unroll
  for (const float each : x) largest = fmaxf(largest, fabsf(each));

  // Floats that are not negative have the order of their bits.
  __shared__ unsigned warps[32];
  const unsigned of_warp = __reduce_max_sync(~0u, __float_as_uint(largest));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = of_warp;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const unsigned all = __reduce_max_sync(
      ~0u, threadIdx.x < quantizing_threads(kHeadDim) / 32 ? warps[threadIdx.x] : 0u);
  if (threadIdx.x == 0) atomicMax(a.amax + block.factor, all);
}

// Q or K.
template <int kHeadDim, bool kRotated>
__global__ void __launch_bounds__(quantizing_threads(kHeadDim))
    quantize_rows_kernel(const __grid_constant__ QuantizeArguments a) {
  constexpr int kLanes = kHeadDim / kThreadElements;
  const QuantizedBlock block(a);
  const int row = block.first_row + static_cast<int>(threadIdx.x) / kLanes;
  float x[kThreadElements];
  load_part<kHeadDim, kRotated>(a, block, row, x);
  const Quotient over(a, block);
  if (row >= a.rows) return;
  auto* to = reinterpret_cast<uint2*>(a.to + (int64_t{block.head} * a.rows + row) * kHeadDim) +
             static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float* y = x + 8 * i;
    to[kLanes * i] =
        make_uint2(ptx::cvt_rn_satfinite_e4m3x4(over(y[0]), over(y[1]), over(y[2]), over(y[3])),
                   ptx::cvt_rn_satfinite_e4m3x4(over(y[4]), over(y[5]), over(y[6]), over(y[7])));
  }
}

// V.
template <int kHeadDim>
__global__ void __launch_bounds__(quantizing_threads(kHeadDim))
    quantize_v_kernel(const __grid_constant__ QuantizeArguments a) {
  constexpr int kQuads = kHeadDim / 32;
  __shared__ TransposedTile<kHeadDim> tile;
  // A warp has 8 words of 32 columns.
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int chunk = warp % kQuads * 4 + lane / 8, word = warp / kQuads * 8 + lane % 8;
  const QuantizedBlock block(a);
  float x[4][8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = block.first_row + key_of_word(word, i);
    unpack(row < a.rows ? __ldg(block.row(a, row) + chunk) : uint4{0, 0, 0, 0}, x[i]);
  }
  const Quotient over(a, block);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    tile.words[8 * chunk + j][word] =
        ptx::cvt_rn_satfinite_e4m3x4(over(x[0][j]), over(x[1][j]), over(x[2][j]), over(x[3][j]));
  }
  __syncthreads();
  const int64_t row_bytes = int64_t{a.row_blocks} * kTransposedKeys;
  tile.store(a.to + int64_t{block.head} * kHeadDim * row_bytes + block.first_row, row_bytes,
             quantizing_threads(kHeadDim));
}

}  // namespace flashbench::kernels::sm90
