// How the fp32 forward pass multiplies: sum += A B by a warp, each step along the summed dimension
// an outer product in registers. Step k of A holds the factors of the warp's rows, of B those of
// its columns, side by side in shared memory.
//
// Registers lie in two banks, the even and the odd ones, each of which gives one operand a clock: a
// multiply-add that is to take one may read two, and on the whole as many of either bank. In an
// outer product one factor stays where the last operands are kept while the other runs through a
// vector, from bank to bank, and the sum that it meets can lie in the other bank, as far as ptxas
// has registers to choose from. The longer side runs, so that the other changes seldom.
#pragma once

#include "kernels/simt/tile.cuh"

namespace flashbench::kernels::simt {

__host__ __device__ constexpr int vector_width(int count) {
  return count < 4 ? count : 4;
}

// Which of the warp's rows, or columns, is number `i` of the kCount that a lane has: vectors of up
// to four, taken by kLanes lanes in turn.
template <int kCount, int kLanes>
__device__ constexpr int place(int lane, int i) {
  constexpr int kWidth = vector_width(kCount);
  return i / kWidth * (kWidth * kLanes) + lane * kWidth + i % kWidth;
}

// Steps in shared memory: kStride floats each, and kPadding more behind every fourth.
template <int kStride, int kPadding_ = 0>
struct Steps {
  static constexpr int kPadding = kPadding_;
  __host__ __device__ static constexpr int offset(int step) {
    return step * kStride + step / 4 * kPadding;
  }
};

// A lane's factors of one step.
template <int kCount, int kLanes>
struct Factors {
  static constexpr int kWidth = vector_width(kCount);
  struct alignas(4 * kWidth) Vector {
    float values[kWidth];
  };
  Vector vectors[kCount / kWidth];

  __device__ void load(const float* step) {
#pragma unroll
    for (int i = 0; i < kCount / kWidth; ++i) {
      vectors[i] = *reinterpret_cast<const Vector*>(step + i * kWidth * kLanes);
    }
  }
  __device__ float operator[](int i) const {
    return vectors[i / kWidth].values[i % kWidth];
  }
};

// The rows of P are stored with neighbours exchanged: S, of which P's vectors of rows are made,
// then lies in other banks than the vectors of Q's rows that it is summed from.
__host__ __device__ constexpr int exchanged(int row) {
  return row ^ 1;
}

// sum += a b, kExchanged: of rows that are stored so. Where kSkipMasked, masked elements of a are
// no factors.
template <bool kSkipMasked, bool kExchanged, int kRows, int kColumns, typename A, typename B>
__device__ void add_outer_product(const A& a, const B& b, float (&sum)[kRows][kColumns]) {
  const auto add = [&](int i, int j) {
    const float factor = a[kExchanged ? exchanged(i) : i];
    if (!kSkipMasked || !is_masked(factor)) sum[i][j] += factor * b[j];
  };
  if constexpr (kRows >= kColumns) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) add(j % 2 == 0 ? i : kRows - 1 - i, j);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) add(i, i % 2 == 0 ? j : kColumns - 1 - j);
    }
  }
}

// sum += A B over kDepth steps that lie in shared memory as StepsA and StepsB say; `a` and `b`
// point at the lane's first row and column of the first. Each step is read while the one before is
// multiplied: there are too few warps to wait for shared memory.
template <bool kSkipMasked, bool kExchanged, int kUnroll, int kDepth, typename StepsA,
          typename StepsB, int kRows, int kColumns>
__device__ void add_product(const float* a, const float* b, float (&sum)[kRows][kColumns]) {
  static_assert(kDepth % kUnroll == 0);
  static_assert(kUnroll % 4 == 0 || StepsA::kPadding + StepsB::kPadding == 0);
  Factors<kRows, kLaneRows> left;
  Factors<kColumns, kLaneColumns> right;
  left.load(a);
  right.load(b);
#pragma unroll 1
  for (int first = 0; first < kDepth; first += kUnroll) {
    const int steps = first + kUnroll < kDepth ? kUnroll : 0;  // to the next that are read
    const float* const next_a = a + StepsA::offset(steps);
    const float* const next_b = b + StepsB::offset(steps);
#pragma unroll
    for (int k = 1; k <= kUnroll; ++k) {
      Factors<kRows, kLaneRows> next_left;
      Factors<kColumns, kLaneColumns> next_right;
      next_left.load(k < kUnroll ? a + StepsA::offset(k) : next_a);
      next_right.load(k < kUnroll ? b + StepsB::offset(k) : next_b);
      add_outer_product<kSkipMasked, kExchanged>(left, right, sum);
      left = next_left;
      right = next_right;
    }
    a = next_a;
    b = next_b;
  }
}

}  // namespace flashbench::kernels::simt
