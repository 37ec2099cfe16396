// Transposes V of e4m3 for forward_e4m3.cuh: from rows of head_dim to rows of keys, with each 16
// keys in the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15. In the accumulators of S a thread has
// keys 2i, 2i + 1, 8 + 2i and 9 + 2i of each 16, and in the operand P of P V it has four keys that
// are adjacent in V.
#pragma once

#include <cstdint>

namespace flashbench::kernels::sm90 {

inline constexpr int kTransposedKeys = 128;  // of a thread block

// The columns of transposed V: those for which the kernel is compiled.
__host__ __device__ constexpr int transposed_columns(int head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

// From [batch, heads, keys, head_dim], strides in bytes, to [batch, heads, key_blocks,
// transposed_columns(head_dim), kTransposedKeys], of which what V does not have becomes 0. A block
// of keys is in one piece, as one thread block writes it.
struct TransposeArguments {
  const uint8_t* from;
  int64_t batch_stride, head_stride, row_stride;
  uint8_t* to;
  int heads, keys, head_dim;  // a multiple of 16
  int key_blocks, column_blocks;
};

// A transposed tile in shared memory: rows of keys, of which four that are adjacent are a word. The
// odd distance between rows avoids bank conflicts where neighbouring lanes have neighbouring words;
// a row's chunks of 16 bytes may be swapped, by an XOR with swap(column), to avoid the others.
template <int kColumns>
struct TransposedTile {
  static constexpr int kWords = kTransposedKeys / 4;
  uint32_t words[kColumns][kWords + 1];

  // Copies the tile to where it is in one piece. Called by all threads.
  template <int kThreads, typename Swap>
  __device__ void store(uint8_t* to, const Swap& swap) const {
    constexpr int kChunks = kWords / 4;  // of 16 bytes, in a row
    static_assert(kColumns * kChunks % kThreads == 0);
#pragma unroll
    for (int done = 0; done < kColumns * kChunks; done += kThreads) {
      const int i = done + static_cast<int>(threadIdx.x), column = i / kChunks;
      const uint32_t* chunk = words[column] + (i % kChunks ^ swap(column)) * 4;
      reinterpret_cast<uint4*>(to)[i] = make_uint4(chunk[0], chunk[1], chunk[2], chunk[3]);
    }
  }
};

// The key of a tile that is byte i of this word of a row.
inline __device__ int key_of_word(int word, int i) {
  return word / 4 * 16 + word % 4 * 2 + i / 2 * 8 + i % 2;
}

__host__ __device__ constexpr int transposing_threads(int columns) {
  return columns * kTransposedKeys / 64;
}

// A thread reads 16 columns of four keys that become adjacent: four bytes, one word, of 16 rows. A
// warp reads rows of kColumns bytes whole.
template <int kColumns>
__device__ void transpose_v_block(const TransposeArguments& a) {
  constexpr int kLanes = kColumns / 16;  // of a row
  constexpr int kWarpWords = 32 / kLanes;
  // Lanes whose columns are 32 apart would meet in a bank.
  const auto swap = [](int column) { return column / 32 * (kWarpWords / 4); };
  __shared__ TransposedTile<kColumns> tile;
  const int block = static_cast<int>(blockIdx.x) / a.column_blocks;
  const int first_column = static_cast<int>(blockIdx.x) % a.column_blocks * kColumns;
  const int first_key = block % a.key_blocks * kTransposedKeys;
  const int head = block / a.key_blocks;  // of all requests

  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int column = lane % kLanes * 16, word = warp * kWarpWords + lane / kLanes;
  const uint8_t* from = a.from + head / a.heads * a.batch_stride + head % a.heads * a.head_stride +
                        first_column + column;
  uint32_t x[4][4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = first_key + key_of_word(word, i);
    if (key >= a.keys || first_column + column >= a.head_dim) continue;
    const uint4 row = __ldcs(reinterpret_cast<const uint4*>(from + key * a.row_stride));
    x[i][0] = row.x, x[i][1] = row.y, x[i][2] = row.z, x[i][3] = row.w;
  }
  const int at = word ^ swap(column) * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // 4 columns, 4 x 4 bytes
    const uint32_t low_01 = __byte_perm(x[0][i], x[1][i], 0x5140);
    const uint32_t low_23 = __byte_perm(x[2][i], x[3][i], 0x5140);
    const uint32_t high_01 = __byte_perm(x[0][i], x[1][i], 0x7362);
    const uint32_t high_23 = __byte_perm(x[2][i], x[3][i], 0x7362);
    tile.words[column + 4 * i][at] = __byte_perm(low_01, low_23, 0x5410);
    tile.words[column + 4 * i + 1][at] = __byte_perm(low_01, low_23, 0x7632);
    tile.words[column + 4 * i + 2][at] = __byte_perm(high_01, high_23, 0x5410);
    tile.words[column + 4 * i + 3][at] = __byte_perm(high_01, high_23, 0x7632);
  }
  __syncthreads();
  tile.template store<transposing_threads(kColumns)>(
      a.to + (int64_t{block} * a.column_blocks * kColumns + first_column) * kTransposedKeys, swap);
}

}  // namespace flashbench::kernels::sm90
