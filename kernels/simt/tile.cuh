// Code that the fp32 kernels of this folder share: it loads tiles from tensors of any dtype and
// alignment into shared memory as fp32, and multiplies them in registers for the backward pass (the
// forward pass uses outer_product.cuh).
//
// A warp computes kRows * 4 rows and kColumns * 8 columns of a product: lane (y, x) of 4 x 8
// computes rows y + 4 i and columns x + 8 j. The rows of operands in shared memory run along the
// summed dimension or across it, and are read 16 bytes at a time. With this mapping of lanes every
// read of a warp takes two wavefronts, the minimum.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>

#include <cstdint>
#include <limits>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "kernels/common/convert.cuh"
#include "kernels/common/with_type.cuh"

namespace flashbench::kernels::simt {

constexpr int kWarp = 32;
constexpr int kLaneRows = 4, kLaneColumns = 8;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// Pads each row by 16 bytes, so that a column of eight successive rows lies in different banks.
__host__ __device__ constexpr int padded(int columns) {
  return columns + 4;
}

// The columns of a product that is the operand of the next one go through shared memory,
// kPassColumns at a time. This stride spreads the stores of a warp over all banks.
__host__ __device__ constexpr int pass_stride(int pass_columns) {
  return pass_columns + 8;
}

// The value of a masked factor: it is skipped, whatever the other factor holds. Visible factors
// that are 0 are +0.
constexpr float kMasked = -0.0f;
__device__ inline bool is_masked(float factor) {
  return __float_as_uint(factor) == 0x80000000u;
}

struct Lane {
  int warp, y, x;
  __device__ Lane() {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    warp = static_cast<int>(threadIdx.x) / kWarp;
    y = lane % 2 + lane / 16 * 2;
    x = lane / 2 % kLaneColumns;
  }
};

// Reduce over the lanes that share the same rows.
__device__ inline float row_max(float value) {
#pragma unroll
  for (int lane = 2; lane <= 8; lane *= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, lane));
  }
  return value;
}
__device__ inline float row_sum(float value) {
#pragma unroll
  for (int lane = 2; lane <= 8; lane *= 2) value += __shfl_xor_sync(0xffffffff, value, lane);
  return value;
}

// Does not use from_float, with which ptxas would order some instructions of the fp32 kernels
// differently.
__device__ inline void store(float x, float* to) {
  *to = x;
}
__device__ inline void store(float x, __half* to) {
  *to = __float2half_rn(x);
}
__device__ inline void store(float x, __nv_bfloat16* to) {
  *to = __float2bfloat16_rn(x);
}

// A kernel argument: a tensor [batch, heads, length, head_dim].
template <typename T>
struct Tensor {
  T* data;
  int64_t batch_stride, head_stride, row_stride;

  __device__ T* head(int64_t batch, int64_t h) const {
    return data + batch * batch_stride + h * head_stride;
  }
};

template <typename T, typename View>
Tensor<T> tensor(const View& view) {
  return {static_cast<T*>(view.data), view.batch_stride, view.head_stride, view.row_stride};
}

// The rows of one head, from which tiles are read.
template <typename T>
struct Rows {
  const T* data;
  int64_t row_stride;
  int length, head_dim;
  bool aligned;
};

// Loads a tile [kTileRows, kDim] from global memory to fp32 in shared memory, with row stride
// kStride; fills missing rows and columns with zeros. All kThreads threads call fetch and then
// commit; the tile is complete after a barrier. fp32 data is copied directly to shared memory,
// other dtypes through registers.
template <typename T, int kThreads, int kTileRows, int kDim, int kStride>
class TileLoad {
  static constexpr int kWidth = 16 / sizeof(T);
  static constexpr int kVectors = kTileRows * kDim / kWidth / kThreads;
  static_assert(kVectors * kWidth * kThreads == kTileRows * kDim);
  static constexpr bool kDirect = sizeof(T) == sizeof(float);

 public:
  __device__ void fetch(const Rows<T>& rows, int first_row, float* tile) {
    const Place place;
    const T* from = rows.data + (first_row + place.row(0)) * rows.row_stride + place.column(0);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int row = place.row(i), column = place.column(i);
      const bool exists = first_row + row < rows.length && column < rows.head_dim;
      const T* at = from + (row - place.row(0)) * rows.row_stride + (column - place.column(0));
      if constexpr (kDirect) {
        copy(exists ? at : rows.data, rows.aligned, exists, tile + row * kStride + column);
      } else {
        read(at, rows.aligned, exists, staged_[i]);
      }
    }
  }

  __device__ void commit(float* tile) {
    if constexpr (kDirect) {
      __pipeline_commit();
      __pipeline_wait_prior(0);
    } else {
      const Place place;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        float* to = tile + place.row(i) * kStride + place.column(i);
#pragma unroll
        for (int j = 0; j < kWidth; j += 4) {
          *reinterpret_cast<float4*>(to + j) =
              make_float4(to_float(staged_[i].values[j]), to_float(staged_[i].values[j + 1]),
                          to_float(staged_[i].values[j + 2]), to_float(staged_[i].values[j + 3]));
        }
      }
    }
  }

 private:
  struct alignas(16) Vector {
    T values[kWidth];
  };

  // The row and column of vector i of a thread. They are recomputed for every tile: kept, they
  // would take registers from the sums.
  struct Place {
    int vector;
    __device__ Place() : vector(static_cast<int>(threadIdx.x)) { asm volatile("" : "+r"(vector)); }
    __device__ int row(int i) const { return (vector + i * kThreads) / (kDim / kWidth); }
    __device__ int column(int i) const {
      return (vector + i * kThreads) % (kDim / kWidth) * kWidth;
    }
  };

  static __device__ void copy(const T* from, bool aligned, bool exists, float* to) {
    if (aligned) {
      __pipeline_memcpy_async(to, from, 16, exists ? 0 : 16);
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        __pipeline_memcpy_async(to + j, exists ? from + j : from, 4, exists ? 0 : 4);
      }
    }
  }

  static __device__ void read(const T* from, bool aligned, bool exists, Vector& to) {
    if (!exists) {
      *reinterpret_cast<uint4*>(&to) = make_uint4(0, 0, 0, 0);
    } else if (aligned) {
      to = *reinterpret_cast<const Vector*>(from);
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) to.values[j] = from[j];
    }
  }

  Vector staged_[kDirect ? 1 : kVectors];
};

template <int kColumns, int kStride>
__device__ void load_right(const float* b, float4 (&right)[kColumns]) {
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    right[j] = *reinterpret_cast<const float4*>(b + j * kLaneColumns * kStride);
  }
}

// product = A B^T. The rows of A and B run along the summed dimension, [.., kDepth], with strides
// kStrideA and kStrideB; `a` and `b` point to the warp's first rows. The next operands are loaded
// while the current ones are multiplied, because there are too few warps to hide the latency of
// shared memory.
template <int kDepth, int kStrideA, int kStrideB, int kRows, int kColumns>
__device__ void multiply_transposed(const float* a, const float* b, const Lane& lane,
                                    float (&product)[kRows][kColumns]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) product[i][j] = 0;
  }
  a += lane.y * kStrideA;
  b += lane.x * kStrideB;
  float4 right[kColumns], left = *reinterpret_cast<const float4*>(a);
  load_right<kColumns, kStrideB>(b, right);
#pragma unroll 2
  for (int k = 0; k < kDepth; k += 4) {
    const int next_k = k + 4 < kDepth ? k + 4 : k;
    float4 next_right[kColumns];
    load_right<kColumns, kStrideB>(b + next_k, next_right);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float4 next_left = *reinterpret_cast<const float4*>(
          i + 1 < kRows ? a + (i + 1) * kLaneRows * kStrideA + k : a + next_k);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) product[i][j] += left.x * right[j].x;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) product[i][j] += left.y * right[j].y;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) product[i][j] += left.z * right[j].z;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) product[i][j] += left.w * right[j].w;
      left = next_left;
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) right[j] = next_right[j];
  }
}

// The column of the matrix that is column `c` of lane x, of a sum with kDim / 8 columns per lane:
// vectors of four, 32 columns apart.
__device__ inline int sum_column(const Lane& lane, int c) {
  return c / 4 * 32 + lane.x * 4 + c % 4;
}

// Stores the lane's columns of a sum, times `factor`, to a row of a tensor.
template <typename T, int kDimColumns>
__device__ void store_row(const float (&sum)[kDimColumns], float factor, const Lane& lane,
                          int head_dim, bool aligned, T* row) {
  struct alignas(4 * sizeof(T)) Vector {
    T values[4];
  };
#pragma unroll
  for (int c = 0; c < kDimColumns; c += 4) {
    const int column = sum_column(lane, c);
    if (column >= head_dim) continue;
    Vector vector;
#pragma unroll
    for (int j = 0; j < 4; ++j) store(sum[c + j] * factor, &vector.values[j]);
    if (aligned) {
      *reinterpret_cast<Vector*>(row + column) = vector;
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) row[column + j] = vector.values[j];
    }
  }
}

// sum += A B for the warp's own A [.., kPass], and B [kPass, kDim] with stride kStrideB, whose rows
// run across the summed dimension. kSkipMasked: skips masked elements of A.
template <bool kSkipMasked, int kPass, int kStrideB, int kRows, int kDimColumns>
__device__ void accumulate(const float* a, const float* b, const Lane& lane,
                           float (&sum)[kRows][kDimColumns]) {
  constexpr int kVectors = kDimColumns / 4;  // per row of B
  a += lane.y * pass_stride(kPass);
  b += sum_column(lane, 0);
  const auto load_left = [&](int i, int k) {
    return *reinterpret_cast<const float2*>(a + i * kLaneRows * pass_stride(kPass) + k);
  };
  float2 left[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) left[i] = load_left(i, 0);
  auto right = *reinterpret_cast<const float4*>(b);
#pragma unroll(kVectors <= 2 ? 2 : 1)
  for (int k = 0; k < kPass; k += 2) {
    const int next_k = k + 2 < kPass ? k + 2 : k;
    float2 next_left[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) next_left[i] = load_left(i, next_k);
#pragma unroll
    for (int step = 0; step < 2 * kVectors; ++step) {
      constexpr int kLast = 2 * kVectors - 1;
      const int c = step % kVectors * 4;
      const float* next =
          step < kLast ? b + (k + (step + 1) / kVectors) * kStrideB + (step + 1) % kVectors * 32
                       : b + next_k * kStrideB;
      const auto next_right = *reinterpret_cast<const float4*>(next);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float factor = step < kVectors ? left[i].x : left[i].y;
        if (kSkipMasked && is_masked(factor)) continue;
        sum[i][c] += factor * right.x;
        sum[i][c + 1] += factor * right.y;
        sum[i][c + 2] += factor * right.z;
        sum[i][c + 3] += factor * right.w;
      }
      right = next_right;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) left[i] = next_left[i];
  }
}

// sum += A B for A in the registers of a warp (a product), which goes through the warp's own `pass`
// [kRows * 4][pass_stride] in shared memory, and B [kColumns * 8, kDim] with stride kStrideB.
template <int kPass, int kStrideB, int kRows, int kColumns, int kDimColumns>
__device__ void accumulate_product(const float (&a)[kRows][kColumns], bool masked, float* pass,
                                   const float* b, const Lane& lane,
                                   float (&sum)[kRows][kDimColumns]) {
  constexpr int kStep = kPass / kLaneColumns;
  static_assert(kColumns % kStep == 0);
#pragma unroll
  for (int first = 0; first < kColumns; first += kStep) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kStep; ++j) {
        pass[(lane.y + i * kLaneRows) * pass_stride(kPass) + lane.x + j * kLaneColumns] =
            a[i][first + j];
      }
    }
    __syncwarp();
    const float* rows = b + first * kLaneColumns * kStrideB;
    if (masked) {
      accumulate<true, kPass, kStrideB>(pass, rows, lane, sum);
    } else {
      accumulate<false, kPass, kStrideB>(pass, rows, lane, sum);
    }
  }
}

}  // namespace flashbench::kernels::simt
