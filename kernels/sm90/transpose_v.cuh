// Transposes V of e4m3 for forward_e4m3.cuh: from rows of head_dim to rows of keys, with each 16
// keys in the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15. In the accumulators of S a thread has
// keys 2i, 2i + 1, 8 + 2i and 9 + 2i of each 16, and in the operand P of P V it has four keys that
// are adjacent in V.
#pragma once

#include <cstdint>

namespace flashbench::kernels::sm90 {

inline constexpr int kTransposedKeys = 128;    // of a thread block
inline constexpr int kTransposedColumns = 64;  // of a thread block
inline constexpr int kTransposingThreads = 128;

// From [batch, heads, keys, head_dim], strides in bytes, to [batch, heads, column_blocks *
// kTransposedColumns, key_blocks * kTransposedKeys], of which what V does not have becomes 0.
struct TransposeArguments {
  const uint8_t* from;
  int64_t batch_stride, head_stride, row_stride;
  uint8_t* to;
  int heads, keys, head_dim;  // a multiple of 16
  int key_blocks, column_blocks;
};

// A transposed tile in shared memory: rows of keys, of which four that are adjacent are a word. The
// odd distance between rows avoids bank conflicts.
template <int kColumns>
struct TransposedTile {
  static constexpr int kWords = kTransposedKeys / 4;
  uint32_t words[kColumns][kWords + 1];

  // Copies the tile to rows that begin at `to`. Called by all `threads` threads.
  __device__ void store(uint8_t* to, int64_t row_bytes, int threads) const {
    constexpr int kChunks = kWords / 4;  // of 16 bytes, in a row
    for (int i = static_cast<int>(threadIdx.x); i < kColumns * kChunks; i += threads) {
      const uint32_t* chunk = words[i / kChunks] + i % kChunks * 4;
      reinterpret_cast<uint4*>(to + i / kChunks * row_bytes)[i % kChunks] =
          make_uint4(chunk[0], chunk[1], chunk[2], chunk[3]);
    }
  }
};

// The key of a tile that is byte i of this word of a row.
inline __device__ int key_of_word(int word, int i) {
  return word / 4 * 16 + word % 4 * 2 + i / 2 * 8 + i % 2;
}

// A thread reads 16 columns of four keys that become adjacent: four bytes, one word, of 16 rows.
inline __device__ void transpose_v_block(const TransposeArguments& a) {
  __shared__ TransposedTile<kTransposedColumns> tile;
  const int first_key = static_cast<int>(blockIdx.x) % a.key_blocks * kTransposedKeys;
  const int rest = static_cast<int>(blockIdx.x) / a.key_blocks;
  const int first_column = rest % a.column_blocks * kTransposedColumns;
  const int head = rest / a.column_blocks;  // of all requests

  // A warp has 16 words of 32 columns, so that it reads sectors of memory whole.
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int column = warp % 2 * 32 + lane / 16 * 16, word = warp / 2 * 16 + lane % 16;
  const uint8_t* from = a.from + head / a.heads * a.batch_stride + head % a.heads * a.head_stride +
                        first_column + column;
  uint32_t x[4][4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = first_key + key_of_word(word, i);
    if (key >= a.keys || first_column + column >= a.head_dim) continue;
    const uint4 row = __ldg(reinterpret_cast<const uint4*>(from + key * a.row_stride));
    x[i][0] = row.x, x[i][1] = row.y, x[i][2] = row.z, x[i][3] = row.w;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // 4 columns, 4 x 4 bytes
    const uint32_t low_01 = __byte_perm(x[0][i], x[1][i], 0x5140);
    const uint32_t low_23 = __byte_perm(x[2][i], x[3][i], 0x5140);
    const uint32_t high_01 = __byte_perm(x[0][i], x[1][i], 0x7362);
    const uint32_t high_23 = __byte_perm(x[2][i], x[3][i], 0x7362);
    tile.words[column + 4 * i][word] = __byte_perm(low_01, low_23, 0x5410);
    tile.words[column + 4 * i + 1][word] = __byte_perm(low_01, low_23, 0x7632);
    tile.words[column + 4 * i + 2][word] = __byte_perm(high_01, high_23, 0x5410);
    tile.words[column + 4 * i + 3][word] = __byte_perm(high_01, high_23, 0x7632);
  }
  __syncthreads();

  const int64_t row_bytes = int64_t{a.key_blocks} * kTransposedKeys;
  tile.store(a.to +
                 (int64_t{head} * a.column_blocks * kTransposedColumns + first_column) * row_bytes +
                 first_key,
             row_bytes, kTransposingThreads);
}

}  // namespace flashbench::kernels::sm90
