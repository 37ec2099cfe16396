// Blocks of products of pairs of bf16 (chunks-inl.h), for CPUs with AVX512_BF16: one instruction
// multiplies two elements of each lane, where fp32 takes two and a conversion of each. Highway
// includes this file once per target.
#if defined(FLASHBENCH_KERNELS_CPU_CHUNK_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FLASHBENCH_KERNELS_CPU_CHUNK_PAIRS_INL_H_
#undef FLASHBENCH_KERNELS_CPU_CHUNK_PAIRS_INL_H_
#else
#define FLASHBENCH_KERNELS_CPU_CHUNK_PAIRS_INL_H_
#endif

#include <array>
#include <cstddef>

#include "kernels/cpu/chunk_rows-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flashbench::kernels {
namespace HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_CAP_GE512

constexpr bool kTargetMultipliesPairs = true;

inline bool cpu_multiplies_pairs() {
  static const bool has_instructions = __builtin_cpu_supports("avx512bf16");
  return has_instructions;
}

// Of each lane: `sums` plus the products of the two elements of `a` and `b`. Products are exact,
// each sum is rounded, and subnormal elements count as 0.
HWY_INLINE Vector add_products_of_pairs(Vector sums, Vector a, Vector b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sums.raw) : "v"(a.raw), "v"(b.raw));
  return sums;
}

// A row of 4 x 4 blocks of four lanes for each of four queries: stores the sums of its blocks,
// times `scale`.
HWY_INLINE void store_sums_of_blocks(const std::array<__m512, 4>& rows, float scale,
                                     float* HWY_RESTRICT scores) {
  const auto add_halves = [](__m512 a, __m512 b) HWY_ATTR {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  };
  const __m512 low = add_halves(rows[0], rows[1]), high = add_halves(rows[2], rows[3]);
  const __m512 sums =
      _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xDD));
  const __m512 scaled = _mm512_mul_ps(sums, _mm512_set1_ps(scale));
  _mm_storeu_ps(scores, _mm512_extractf32x4_ps(scaled, 0));
  _mm_storeu_ps(scores + kTileKeys, _mm512_extractf32x4_ps(scaled, 1));
  _mm_storeu_ps(scores + 2 * kTileKeys, _mm512_extractf32x4_ps(scaled, 2));
  _mm_storeu_ps(scores + 3 * kTileKeys, _mm512_extractf32x4_ps(scaled, 3));
}

// Scores of kQueries queries and the block of keys from `first` on, times `scale`. The rows of Q
// are bf16, kRowStride floats apart.
template <size_t kQueries>
HWY_INLINE void dot_block_of_pairs(const float* HWY_RESTRICT q, const TileRows& keys, size_t first,
                                   size_t columns, float scale, float* HWY_RESTRICT scores) {
  const FloatTag d;
  std::array<Vector, kQueries * kBlockKeys> sums;
  sums.fill(hn::Zero(d));
  std::array<const float*, kBlockKeys> rows;
  for (size_t i = 0; i < kBlockKeys; ++i) rows[i] = static_cast<const float*>(keys[first + i]);
  for (size_t pair = 0; pair < columns / 2; pair += kLanes) {
    std::array<Vector, kBlockKeys> key;
    for (size_t k = 0; k < kBlockKeys; ++k) key[k] = hn::LoadU(d, rows[k] + pair);
    for (size_t i = 0; i < kQueries; ++i) {
      const Vector query = hn::Load(d, q + i * kRowStride + pair);
      for (size_t k = 0; k < kBlockKeys; ++k) {
        sums[i * kBlockKeys + k] = add_products_of_pairs(sums[i * kBlockKeys + k], query, key[k]);
      }
    }
  }
  if constexpr (kQueries == 4) {
    std::array<__m512, 4> rows_of_blocks;
    for (size_t i = 0; i < 4; ++i) rows_of_blocks[i] = sums_in_blocks(&sums[i * kBlockKeys]).raw;
    return store_sums_of_blocks(rows_of_blocks, scale, scores);
  }
  for (size_t i = 0; i < kQueries; ++i) {
    float* const to = scores + i * kTileKeys;
    store_sums(&sums[i * kBlockKeys], to);
    for (size_t k = 0; k < kBlockKeys; ++k) to[k] *= scale;
  }
}

#else

constexpr bool kTargetMultipliesPairs = false;
inline bool cpu_multiplies_pairs() {
  return false;
}
template <size_t kQueries>
void dot_block_of_pairs(const float* q, const TileRows& keys, size_t first, size_t columns,
                        float scale, float* scores);

#endif

// Whether pairs are multiplied as they come.
inline bool multiplies_pairs(const Problem& p) {
  return p.dtype == Dtype::bf16 && reads_pairs(p, p.key_dtype()) && cpu_multiplies_pairs();
}

}  // namespace HWY_NAMESPACE
}  // namespace flashbench::kernels
HWY_AFTER_NAMESPACE();

#endif  // include once per target
