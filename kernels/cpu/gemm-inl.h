// Products of small matrices in L1 and L2: the register-blocked micro-kernel for all tile products.
#if defined(FLASHBENCH_KERNELS_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FLASHBENCH_KERNELS_CPU_GEMM_INL_H_
#undef FLASHBENCH_KERNELS_CPU_GEMM_INL_H_
#else
#define FLASHBENCH_KERNELS_CPU_GEMM_INL_H_
#endif

#include <array>
#include <utility>

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace flashbench::kernels {
namespace HWY_NAMESPACE {

// Columns per call of the micro-kernel.
constexpr size_t kPanel = 2 * kLanes;

// Maximum rows per call: each row takes 2 accumulators, beside 2 vectors of B and a broadcast of A.
// 28 of 32 vector registers (AVX-512, ARM) are accumulators, or 12 of 16.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
constexpr size_t kMaxRows = 4;
#elif HWY_CAP_GE512 || HWY_ARCH_ARM
constexpr size_t kMaxRows = 14;
#else
constexpr size_t kMaxRows = 6;
#endif

// The layout of A [rows, depth] in memory: row-major with kRowStride floats between rows, a
// constant that makes each row's address an offset; or transposed, [depth, rows] with any stride.
enum class A { rows, transposed };

// The update of C: C = AB, C += AB, or C = C * scale + AB with a scale for each column.
enum class C { store, add, rescale };

template <A kA, C kC, size_t... kRow>
HWY_INLINE void block(const float* HWY_RESTRICT a, size_t a_stride, const float* HWY_RESTRICT b,
                      size_t b_stride, size_t depth, float* HWY_RESTRICT c, size_t c_stride,
                      const float* HWY_RESTRICT scale, std::index_sequence<kRow...>) {
  const FloatTag d;
  std::array<Vector, sizeof...(kRow)> left{((void)kRow, hn::Zero(d))...};
  std::array<Vector, sizeof...(kRow)> right{((void)kRow, hn::Zero(d))...};
  for (size_t k = 0; k < depth; ++k) {
    const Vector b_left = hn::Load(d, b);
    const Vector b_right = hn::Load(d, b + kLanes);
    const auto multiply = [&](size_t row, Vector& c_left, Vector& c_right) HWY_ATTR {
      const Vector a_row = hn::Set(d, a[kA == A::rows ? row * kRowStride : row]);
      c_left = hn::MulAdd(a_row, b_left, c_left);
      c_right = hn::MulAdd(a_row, b_right, c_right);
    };
    (multiply(kRow, left[kRow], right[kRow]), ...);
    a += kA == A::rows ? 1 : a_stride;
    b += b_stride;
  }
  const auto write = [&](size_t row, Vector c_left, Vector c_right) HWY_ATTR {
    float* out = c + row * c_stride;
    if constexpr (kC == C::add) {
      c_left = hn::Add(hn::LoadU(d, out), c_left);
      c_right = hn::Add(hn::LoadU(d, out + kLanes), c_right);
    }
    if constexpr (kC == C::rescale) {
      c_left = hn::MulAdd(hn::LoadU(d, out), hn::Load(d, scale), c_left);
      c_right = hn::MulAdd(hn::LoadU(d, out + kLanes), hn::Load(d, scale + kLanes), c_right);
    }
    hn::StoreU(c_left, d, out);
    hn::StoreU(c_right, d, out + kLanes);
  };
  (write(kRow, left[kRow], right[kRow]), ...);
}

using Block = void (*)(const float* a, size_t a_stride, const float* b, size_t b_stride,
                       size_t depth, float* c, size_t c_stride, const float* scale);

template <A kA, C kC, size_t kRows>
HWY_NOINLINE void block_of_rows(const float* a, size_t a_stride, const float* b, size_t b_stride,
                                size_t depth, float* c, size_t c_stride, const float* scale) {
  block<kA, kC>(a, a_stride, b, b_stride, depth, c, c_stride, scale,
                std::make_index_sequence<kRows>());
}

template <A kA, C kC, size_t... kRows>
constexpr std::array<Block, sizeof...(kRows)> blocks_by_rows(std::index_sequence<kRows...>) {
  return {block_of_rows<kA, kC, kRows + 1>...};
}

// One panel: C [rows, kPanel] from A [rows, depth] and B [depth, kPanel], with `b` aligned to a
// vector. The rows are divided evenly among as few blocks as possible, because a block of few rows
// has too few independent sums to fill the pipeline. `between` is called after each block.
template <A kA, C kC, typename Between>
HWY_INLINE void multiply_panel(const float* a, size_t a_stride, const float* b, size_t b_stride,
                               size_t rows, size_t depth, float* c, size_t c_stride,
                               const float* scale, const Between& between) {
  static constexpr auto kBlocks = blocks_by_rows<kA, kC>(std::make_index_sequence<kMaxRows>());
  for (size_t blocks = (rows + kMaxRows - 1) / kMaxRows; blocks > 0; --blocks) {
    const size_t block_rows = (rows + blocks - 1) / blocks;
    kBlocks[block_rows - 1](a, a_stride, b, b_stride, depth, c, c_stride, scale);
    a += block_rows * (kA == A::rows ? kRowStride : 1);
    c += block_rows * c_stride;
    rows -= block_rows;
    between();
  }
}

template <A kA, C kC>
HWY_INLINE void multiply_panel(const float* a, size_t a_stride, const float* b, size_t b_stride,
                               size_t rows, size_t depth, float* c, size_t c_stride) {
  multiply_panel<kA, kC>(a, a_stride, b, b_stride, rows, depth, c, c_stride, nullptr,
                         []() HWY_ATTR {});
}

}  // namespace HWY_NAMESPACE
}  // namespace flashbench::kernels
HWY_AFTER_NAMESPACE();

#endif  // include once per target
