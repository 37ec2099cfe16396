// The matrix product of the fp32 forward pass: a warp computes sum += A B, where each step along
// the summed dimension is an outer product in registers. Step k of A holds the factors of the
// warp's rows, step k of B those of its columns, contiguous in shared memory.
//
// Even and odd registers are two banks, and each bank delivers one operand per clock. To issue in
// one clock, a multiply-add may read only two operands from the banks, overall as many from one as
// from the other. In an outer product, one factor stays in the operand reuse cache while the other
// runs through a vector and so alternates between the banks; its accumulator can be in the other
// bank if ptxas has registers to choose from. The longer side runs, so that the other factor
// changes rarely.
#pragma once

#include "kernels/simt/tile.cuh"

namespace flashbench::kernels::simt {

__host__ __device__ constexpr int vector_width(int count) {
  return count < 4 ? count : 4;
}

// The row (or column) of the warp that is number `i` of the kCount that a lane holds: vectors of up
// to four, distributed round-robin over kLanes lanes.
template <int kCount, int kLanes>
__device__ constexpr int place(int lane, int i) {
  constexpr int kWidth = vector_width(kCount);
  return i / kWidth * (kWidth * kLanes) + lane * kWidth + i % kWidth;
}

// The layout of steps in shared memory: kStride floats each, with kPadding floats after every
// fourth.
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

// Neighbouring rows of P are stored in exchanged order. The vectors of P's rows are made from S; S
// then lies in other register banks than the vectors of Q's rows from which it is summed.
__host__ __device__ constexpr int exchanged(int row) {
  return row ^ 1;
}

// sum += a b. kExchanged: the rows of a are stored in exchanged order. kSkipMasked: skips masked
// elements of a.
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

// sum += A B over kDepth steps in shared memory, laid out as StepsA and StepsB. `a` and `b` point
// to the lane's first row and column of the first step. Each step is loaded while the one before is
// multiplied, because there are too few warps to hide the latency of shared memory.
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
    const int steps = first + kUnroll < kDepth ? kUnroll : 0;  // distance to the next steps to load
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
