// Rounds bf16 Q, K and V to e4m3 for forward_e4m3.cuh, and transposes V (transpose_v.cuh). The
// values are bit for bit those of inputs/quantize.h. A thread block has up to 128 columns (all, if
// they are rotated) of 128 rows of a head, a thread 32 elements.
//
// This is the general case, in two launches: the first finds the largest magnitudes. If each head
// has a factor of its own and nothing is rotated, one launch does it all (quantize_heads.cuh).
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <limits>

#include "kernels/ptx/cvt.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/ld.h"
#include "kernels/ptx/st.h"
#include "kernels/sm90/transpose_v.cuh"

namespace flashbench::kernels::sm90 {

inline constexpr int kQuantizedRows = kTransposedKeys;  // of a thread block
inline constexpr int kThreadElements = 32;

__host__ __device__ constexpr int quantized_columns(int head_dim, bool rotated) {
  return rotated || head_dim < 128 ? head_dim : 128;
}

__host__ __device__ constexpr int quantizing_threads(int columns) {
  return columns * kQuantizedRows / kThreadElements;
}

// From [batch, heads, rows, head_dim], strides in elements. Heads share a factor if `one_factor`,
// else each has its own; descales has one element for each.
struct QuantizedTensor {
  const __nv_bfloat16* from;
  int64_t batch_stride, head_stride, row_stride;
  uint8_t* to;  // of Q and K dense; of V as TransposeArguments::to
  float* descales;
  int heads, rows, row_blocks, blocks;
  int heads_together;  // whose blocks take turns, see QuantizeHeads::index_of
};

struct QuantizeArguments {
  QuantizedTensor q, k, v;
  int blocks;        // of all three
  unsigned* amaxes;  // of each block; see report()
  bool one_factor;
  uint32_t signs[8];  // bit c % 32 of word c / 32: whether column c is negated before the rotation
};

// What a thread block rounds: columns of a block of rows.
template <int kHeadDim, int kColumns, int kRows = kQuantizedRows>
struct QuantizedBlock {
  static constexpr int kColumnBlocks = kHeadDim / kColumns;

  const QuantizedTensor& tensor;
  bool is_v;
  int number, head, first_row, first_column;

  __device__ QuantizedBlock(const QuantizeArguments& a, int index)
      : tensor(index < a.q.blocks                ? a.q
               : index < a.q.blocks + a.k.blocks ? a.k
                                                 : a.v),
        is_v(index >= a.q.blocks + a.k.blocks),
        number(index - (is_v                 ? a.q.blocks + a.k.blocks
                        : index < a.q.blocks ? 0
                                             : a.q.blocks)) {
    const int of_rows = number / kColumnBlocks;
    first_column = number % kColumnBlocks * kColumns;
    head = of_rows / tensor.row_blocks;
    first_row = of_rows % tensor.row_blocks * kRows;
  }

  // How many blocks its head has.
  __device__ int of_head() const { return tensor.row_blocks * kColumnBlocks; }

  // Where its bytes go.
  __device__ uint8_t* to() const {
    if (!is_v) {
      return tensor.to + (int64_t{head} * tensor.rows + first_row) * kHeadDim + first_column;
    }
    const int key_blocks = (tensor.rows + kTransposedKeys - 1) / kTransposedKeys;
    const int64_t key_block = int64_t{head} * key_blocks + first_row / kTransposedKeys;
    return tensor.to + (key_block * kHeadDim + first_column) * kTransposedKeys;
  }

  // Where 16 bytes of these rows and chunks of 16 bytes are, and whether the row exists: calls
  // each(i, address, exists).
  template <typename RowOf, typename ChunkOf, typename Each>
  __device__ void locate(const RowOf& row_of, const ChunkOf& chunk_of, const Each& each) const {
    const __nv_bfloat16* from = tensor.from + head / tensor.heads * tensor.batch_stride +
                                head % tensor.heads * tensor.head_stride +
                                first_row * tensor.row_stride + first_column;
    const int rows = tensor.rows - first_row;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto* row = reinterpret_cast<const uint4*>(from + row_of(i) * tensor.row_stride);
      each(i, row + chunk_of(i), row_of(i) < rows);
    }
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

// The largest of all threads' values, for all of them, by way of shared memory. Floats that are not
// negative have the order of their bits.
inline __device__ unsigned largest_of_block(unsigned value, unsigned (&warps)[32]) {
  const unsigned of_warp = __reduce_max_sync(~0u, value);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = of_warp;
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  return __reduce_max_sync(~0u, lane < blockDim.x / 32 ? warps[lane] : 0u);
}

// Stores the largest magnitude of a block, beneath the parity of the launch. It is the sign, so
// that one word says both what it is and whether it is there. Called by one thread.
inline __device__ void report(const QuantizeArguments& a, int block, unsigned magnitude,
                              unsigned parity) {
  ptx::st_relaxed_gpu(a.amaxes + block, magnitude | parity << 31);
}

// The largest magnitude that the blocks first, first + step, ... below `end` report with this
// parity. Waits for them: kAtOnce loads are on their way at first, and one where that was too
// early.
template <int kAtOnce>
__device__ unsigned largest_reported(const unsigned* amaxes, int first, int end, int step,
                                     unsigned parity) {
  unsigned largest = 0;
  for (int i = first; i < end; i += kAtOnce * step) {
    unsigned reported[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      reported[j] = i + j * step < end ? ptx::ld_relaxed_gpu(amaxes + i + j * step) : parity << 31;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      while (reported[j] >> 31 != parity) reported[j] = ptx::ld_relaxed_gpu(amaxes + i + j * step);
      largest = max(largest, reported[j] & ~(1u << 31));
    }
  }
  return largest;
}

inline constexpr float kLargestE4m3 = 448, kLeastFactor = std::numeric_limits<float>::min();

inline __device__ float descale_of(unsigned amax_bits) {
  const float amax = __uint_as_float(amax_bits);
  if (amax == 0) return 1;
  return isinf(amax) ? __int_as_float(0x7FFFFFFF) : fmaxf(amax / kLargestE4m3, kLeastFactor);
}

// Divides by a number, rounded to nearest as a division is.
class Quotient {
 public:
  explicit __device__ Quotient(float divisor) : divisor_(divisor), inverse_(1 / divisor) {}
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

// A thread's elements, as they are loaded: 16 bytes of a row are 8 columns. Rows behind the last
// are 0.
struct Packed {
  uint4 chunks[4];
};

// Of V that will be transposed, a thread has 8 columns of the four keys of a word. A warp has 8
// words of 32 columns.
template <int kColumns>
struct PlaceInV {
  static constexpr int kQuads = kColumns / 32;
  int chunk, word;

  __device__ PlaceInV() {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    chunk = warp % kQuads * 4 + lane / 8;
    word = warp / kQuads * 8 + lane % 8;
  }
};

// Locates a thread's elements. Of Q and K, and of V where only the largest magnitude counts, they
// are parts of one row; of V that will be transposed, of four keys.
template <int kHeadDim, int kColumns, typename Each>
__device__ void locate(const QuantizedBlock<kHeadDim, kColumns>& block, bool as_keys,
                       const Each& each) {
  if (as_keys) {
    const PlaceInV<kColumns> place;
    block.locate([&](int i) { return key_of_word(place.word, i); },
                 [&](int) { return place.chunk; }, each);
  } else {
    constexpr int kLanes = kColumns / kThreadElements;  // of a row
    const int row = static_cast<int>(threadIdx.x) / kLanes;
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    block.locate([&](int) { return row; }, [&](int i) { return lane + kLanes * i; }, each);
  }
}

template <int kHeadDim, int kColumns>
__device__ Packed load(const QuantizedBlock<kHeadDim, kColumns>& block, bool as_keys) {
  Packed x;
  locate(block, as_keys, [&](int i, const uint4* from, bool exists) {
    x.chunks[i] = exists ? __ldg(from) : uint4{0, 0, 0, 0};
  });
  return x;
}

template <int kHeadDim, bool kRotated>
__device__ void unpack_row(const QuantizeArguments& a, const Packed& packed,
                           float (&x)[kThreadElements]) {
  constexpr int kLanes = kHeadDim / kThreadElements;
#pragma unroll
  for (int i = 0; i < 4; ++i) unpack(packed.chunks[i], x + 8 * i);
  if constexpr (kRotated) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * (static_cast<int>(threadIdx.x) % kLanes + kLanes * i);
      const uint32_t signs = a.signs[column / 32] >> column % 32;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        x[8 * i + j] = __uint_as_float(__float_as_uint(x[8 * i + j]) ^ (signs >> j & 1) << 31);
      }
    }
    rotate<kLanes>(x);
  }
}

// The largest magnitude. A NaN counts in none.
inline __device__ float largest_of(const float (&x)[kThreadElements]) {
  float largest = 0;
#pragma unroll
  for (const float each : x) largest = fmaxf(largest, fabsf(each));
  return largest;
}
inline __device__ void raise(__nv_bfloat162& largest, const uint4& chunk) {
  for (const uint32_t word : {chunk.x, chunk.y, chunk.z, chunk.w}) {
    largest = __hmax2(largest, __habs2(reinterpret_cast<const __nv_bfloat162&>(word)));
  }
}
inline __device__ float larger(const __nv_bfloat162& pair) {
  return __bfloat162float(__hmax(pair.x, pair.y));
}
inline __device__ float largest_of(const Packed& x) {
  __nv_bfloat162 largest{};
#pragma unroll
  for (const uint4& chunk : x.chunks) raise(largest, chunk);
  return larger(largest);
}

inline __device__ uint2 rounded(const Quotient& over, float (&x)[8]) {
#pragma unroll
  for (float& each : x) each = over(each);
  return make_uint2(ptx::cvt_rn_satfinite_e4m3x4(x[0], x[1], x[2], x[3]),
                    ptx::cvt_rn_satfinite_e4m3x4(x[4], x[5], x[6], x[7]));
}

// Calls put(column, word) for 8 columns of four keys, whose bytes are the word.
template <typename Put>
__device__ void round_keys(const Quotient& over, const uint4 (&keys)[4], const Put& put) {
  float x[4][8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    unpack(keys[i], x[i]);
#pragma unroll
    for (float& each : x[i]) each = over(each);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    put(j, ptx::cvt_rn_satfinite_e4m3x4(x[0][j], x[1][j], x[2][j], x[3][j]));
  }
}

// Stores a row of Q or K.
template <int kHeadDim, int kColumns>
__device__ void store_row(const QuantizedBlock<kHeadDim, kColumns>& block, const Quotient& over,
                          float (&x)[kThreadElements]) {
  constexpr int kLanes = kColumns / kThreadElements;
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  if (block.first_row + row >= block.tensor.rows) return;
  auto* to = reinterpret_cast<uint2*>(block.to() + row * kHeadDim) +
             static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[kLanes * i] = rounded(over, reinterpret_cast<float(&)[8]>(x[8 * i]));
  }
}

// Stores a block of keys of V, transposed.
template <int kHeadDim, int kColumns>
__device__ void store_keys(const QuantizedBlock<kHeadDim, kColumns>& block, const Quotient& over,
                           const Packed& packed, TransposedTile<kColumns>& tile) {
  const PlaceInV<kColumns> place;
  round_keys(over, packed.chunks, [&](int column, uint32_t word) {
    tile.words[8 * place.chunk + column][place.word] = word;
  });
  __syncthreads();
  tile.template store<quantizing_threads(kColumns)>(block.to(), [](int) { return 0; });
}

// Finds the largest magnitudes. Q and K may be rotated, V is not.
template <int kHeadDim, bool kRotated>
__global__ void __launch_bounds__(quantizing_threads(quantized_columns(kHeadDim, kRotated)))
    amax_kernel(const __grid_constant__ QuantizeArguments a) {
  ptx::griddepcontrol_launch_dependents();
  __shared__ unsigned warps[32];
  const QuantizedBlock<kHeadDim, quantized_columns(kHeadDim, kRotated)> block(
      a, static_cast<int>(blockIdx.x));
  const Packed packed = load(block, false);
  float largest;
  if (!kRotated || block.is_v) {
    largest = largest_of(packed);
  } else {
    float x[kThreadElements];
    unpack_row<kHeadDim, kRotated>(a, packed, x);
    largest = largest_of(x);
  }
  const unsigned of_block = largest_of_block(__float_as_uint(largest), warps);
  if (threadIdx.x == 0) report(a, static_cast<int>(blockIdx.x), of_block, 0);
}

// Rounds, after amax_kernel. The rows that it read last come first: they are still in the cache.
template <int kHeadDim, bool kRotated>
__global__ void __launch_bounds__(quantizing_threads(quantized_columns(kHeadDim, kRotated)))
    quantize_kernel(const __grid_constant__ QuantizeArguments a) {
  ptx::griddepcontrol_launch_dependents();
  constexpr int kColumns = quantized_columns(kHeadDim, kRotated);
  __shared__ TransposedTile<kColumns> tile;
  __shared__ unsigned warps[32];
  const int index = a.blocks - 1 - static_cast<int>(blockIdx.x);
  const QuantizedBlock<kHeadDim, kColumns> block(a, index);
  const Packed packed = load(block, block.is_v);
  ptx::griddepcontrol_wait();

  const int of_factor = a.one_factor ? block.tensor.blocks : block.of_head();
  const int factor = block.number / of_factor, from_first = block.number % of_factor;
  const int first = index - from_first;
  const unsigned largest = largest_reported<4>(a.amaxes, first + static_cast<int>(threadIdx.x),
                                               first + of_factor, static_cast<int>(blockDim.x), 0);
  const float divisor = descale_of(largest_of_block(largest, warps));
  if (threadIdx.x == 0 && from_first == 0) block.tensor.descales[factor] = divisor;

  const Quotient over(divisor);
  if (block.is_v) {
    store_keys(block, over, packed, tile);
  } else {
    float x[kThreadElements];
    unpack_row<kHeadDim, kRotated>(a, packed, x);
    store_row(block, over, x);
  }
}

}  // namespace flashbench::kernels::sm90
