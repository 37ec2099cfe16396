// Tests each wrapper of a Hopper instruction alone, against its header's description.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/e4m3.h"
#include "attention/half.h"
#include "device/cuda.h"
#include "kernels/ptx/atom.h"
#include "kernels/ptx/barrier.h"
#include "kernels/ptx/cluster.h"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/cp_reduce_async_bulk.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/red.h"
#include "kernels/ptx/setmaxnreg.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/stmatrix.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/cluster_launch.h"
#include "kernels/sm90/roles.cuh"
#include "kernels/sm90/tensor_map.h"
#include "tests/kernels/on_gpu.h"

namespace flashbench::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class CudaPtxSm90 : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
    if (make_cuda_device(0)->info().compute_capability != 90) GTEST_SKIP() << "no Hopper";
  }
};

// The index of a 16-bit element of a row of 64 in shared memory with the 128-byte swizzle.
__host__ __device__ constexpr int swizzled(int row, int column) {
  return row * 64 + ((column / 8 ^ row % 8) * 8 + column % 8);
}

// ---- wgmma

constexpr int kDepth = 32;  // K: two steps

template <int kN>
struct WgmmaShared {
  static constexpr int kPanels = (kN + 63) / 64;
  alignas(1024) uint16_t a[64 * 64], b[kN * 64];          // rows along K
  alignas(1024) uint16_t b_panels[kPanels][kDepth * 64];  // rows along N
  alignas(1024) uint16_t a_columns[kDepth * 64];          // rows along M
};

// D = A B with all operands in shared memory; the same with the rows of B along N, then also those
// of A along M; and with A in registers. D1 = 1 + A B with A in registers and the rows of B along
// N. A [64, kDepth], B [kDepth, kN], D [64, kN], all row-major.
template <typename T, int kN>
__global__ void __launch_bounds__(128)
    wgmma_kernel(const uint16_t* a, const uint16_t* b, float* d, float* d_rows, float* d_columns,
                 float* d_registers, float* d1) {
  extern __shared__ __align__(1024) char shared_memory[];
  auto& shared = *reinterpret_cast<WgmmaShared<kN>*>(shared_memory);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 64 * kDepth; i += 128) {
    shared.a[swizzled(i / kDepth, i % kDepth)] = a[i];
    shared.a_columns[swizzled(i % kDepth, i / kDepth)] = a[i];
  }
  for (int i = thread; i < kDepth * kN; i += 128) {
    const int k = i / kN, n = i % kN;
    shared.b[swizzled(n, k)] = b[i];
    shared.b_panels[n / 64][swizzled(k, n % 64)] = b[i];
  }
  ptx::fence_proxy_async();
  __syncthreads();

  const int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  float sums[kN / 2];
  const auto store = [&](float* to) {
    for (int i = 0; i < kN / 2; ++i) {
      to[(row + i / 2 % 2 * 8) * kN + i / 4 * 8 + column + i % 2] = sums[i];
    }
  };

  uint32_t a_registers[kDepth / 16][4];
  for (int step = 0; step < kDepth / 16; ++step) {
    for (int i = 0; i < 4; ++i) {
      const uint16_t* at = a + (row + i % 2 * 8) * kDepth + step * 16 + column + i / 2 * 8;
      a_registers[step][i] = at[0] | uint32_t{at[1]} << 16;
    }
  }
  const ptx::WgmmaMatrix a_rows(ptx::shared_address(shared.a), 0);
  const ptx::WgmmaMatrix a_columns(ptx::shared_address(shared.a_columns), 0);
  const ptx::WgmmaMatrix b_columns(ptx::shared_address(shared.b), 0);
  const ptx::WgmmaMatrix b_rows(ptx::shared_address(shared.b_panels), kDepth * 128);
  using Product = ptx::Wgmma<kN>;
  constexpr auto kK = ptx::RowsAlong::k, kMn = ptx::RowsAlong::mn;
  const auto sum_steps = [&](float first, float* to, const auto& multiply_step) {
    for (float& x : sums) x = first;
    ptx::keep_here(sums);
    ptx::wgmma_fence();
    for (int step = 0; step < kDepth / 16; ++step) multiply_step(step);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::keep_here(sums);
    store(to);
  };
  // The first step must discard the NaN.
  sum_steps(kNan, d, [&](int step) {
    Product::template multiply_shared<T>(sums, a_rows.advance(step * 32),
                                         b_columns.advance(step * 32), step > 0);
  });
  sum_steps(kNan, d_rows, [&](int step) {
    Product::template multiply_shared<T, kK, kMn>(sums, a_rows.advance(step * 32),
                                                  b_rows.advance(step * 16 * 128), step > 0);
  });
  sum_steps(kNan, d_columns, [&](int step) {
    Product::template multiply_shared<T, kMn, kMn>(sums, a_columns.advance(step * 16 * 128),
                                                   b_rows.advance(step * 16 * 128), step > 0);
  });
  sum_steps(kNan, d_registers, [&](int step) {
    Product::template multiply_registers<T, kK>(sums, a_registers[step],
                                                b_columns.advance(step * 32), step > 0);
  });
  sum_steps(1, d1, [&](int step) {
    Product::template multiply_registers<T>(sums, a_registers[step],
                                            b_rows.advance(step * 16 * 128));
  });
}

// Small integers, so that products and sums are exact.
std::vector<uint16_t> integers(size_t count, Dtype dtype, unsigned seed) {
  std::vector<uint16_t> values(count);
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    store_element(values.data(), dtype, static_cast<int64_t>(i),
                  static_cast<float>(static_cast<int>(seed >> 24) % 9 - 4));
  }
  return values;
}

template <typename T, int kN>
void expect_products(Dtype dtype) {
  const std::vector<uint16_t> a = integers(64 * kDepth, dtype, 1);
  const std::vector<uint16_t> b = integers(kDepth * kN, dtype, 2);
  const OnGpu<uint16_t> a_gpu(a), b_gpu(b);
  const OnGpu<float> d_gpu(64 * kN), d_rows_gpu(64 * kN), d_columns_gpu(64 * kN),
      d_registers_gpu(64 * kN), d1_gpu(64 * kN);
  run(wgmma_kernel<T, kN>, 1, 128, sizeof(WgmmaShared<kN>), a_gpu.data(), b_gpu.data(),
      d_gpu.data(), d_rows_gpu.data(), d_columns_gpu.data(), d_registers_gpu.data(), d1_gpu.data());
  const std::vector<float> d = d_gpu.to_host(), d1 = d1_gpu.to_host();
  int wrong = 0, wrong1 = 0;
  for (int i = 0; i < 64 * kN; ++i) {
    float expected = 0;
    for (int k = 0; k < kDepth; ++k) {
      expected += load_element(a.data(), dtype, i / kN * kDepth + k) *
                  load_element(b.data(), dtype, k * kN + i % kN);
    }
    wrong += d[static_cast<size_t>(i)] != expected;
    wrong1 += d1[static_cast<size_t>(i)] != expected + 1;
  }
  EXPECT_EQ(wrong, 0) << name(dtype) << " in shared memory, N " << kN;
  EXPECT_EQ(d_rows_gpu.to_host(), d) << name(dtype) << " with rows along N, N " << kN;
  EXPECT_EQ(d_columns_gpu.to_host(), d) << name(dtype) << " with rows along M and N, N " << kN;
  EXPECT_EQ(d_registers_gpu.to_host(), d) << name(dtype) << " with A in registers, N " << kN;
  EXPECT_EQ(wrong1, 0) << name(dtype) << " with A in registers, rows along N, N " << kN;
}

template <int... kN>
void expect_products_of_all() {
  (expect_products<__half, kN>(Dtype::fp16), ...);
  (expect_products<__nv_bfloat16, kN>(Dtype::bf16), ...);
}

TEST_F(CudaPtxSm90, WgmmaMultipliesFromSharedMemoryAndFromRegisters) {
  expect_products_of_all<32, 40, 64, 80, 96, 128, 192, 256>();
}

// ---- cvt of e4m3

__global__ void widen_bytes_kernel(const uint32_t* bytes, uint32_t* halves) {
  const unsigned i = threadIdx.x;
  ptx::cvt_rn_f16x2_e4m3x4(bytes[i], halves[2 * i], halves[2 * i + 1]);
}

TEST_F(CudaPtxSm90, EveryByteIsExactInFp16) {
  std::vector<uint32_t> bytes(64);
  for (uint32_t i = 0; i < 64; ++i) bytes[i] = 0x03020100u + 0x04040404u * i;
  const OnGpu<uint32_t> in(bytes);
  const OnGpu<uint32_t> out(size_t{128});
  widen_bytes_kernel<<<1, 64>>>(in.data(), out.data());
  const std::vector<uint32_t> halves = out.to_host();
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const float found = fp16_to_float(static_cast<uint16_t>(halves[byte / 2] >> byte % 2 * 16));
    const float expected = e4m3_to_float(static_cast<uint8_t>(byte));
    EXPECT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected))) << byte;
  }
}

// ---- wgmma of e4m3

constexpr int kBytesDepth = 64;  // K: two steps

// Rows have room for kRowBytes, of which the first kBytesDepth are read.
template <int kN, int kRowBytes>
struct WgmmaBytes {
  alignas(1024) uint8_t a[64 * kRowBytes], b[kN * kRowBytes];
};

template <int kRowBytes>
__device__ int swizzled_byte(int row, int column) {
  constexpr int kChunks = kRowBytes / 16;
  const int by = kRowBytes == 128 ? row % 8 : row / 2 % 4;
  return row * kRowBytes + ((column / 16 ^ by) % kChunks * 16 + column % 16);
}

// D = A B with both operands in shared memory, and with A in registers. A [64, kBytesDepth] and the
// transpose of B [kN, kBytesDepth] are row-major.
template <int kN, int kRowBytes>
__global__ void __launch_bounds__(128)
    wgmma_e4m3_kernel(const uint8_t* a, const uint8_t* b, float* d, float* d_registers) {
  extern __shared__ __align__(1024) char shared_memory[];
  auto& shared = *reinterpret_cast<WgmmaBytes<kN, kRowBytes>*>(shared_memory);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 64 * kBytesDepth; i += 128) {
    shared.a[swizzled_byte<kRowBytes>(i / kBytesDepth, i % kBytesDepth)] = a[i];
  }
  for (int i = thread; i < kN * kBytesDepth; i += 128) {
    shared.b[swizzled_byte<kRowBytes>(i / kBytesDepth, i % kBytesDepth)] = b[i];
  }
  ptx::fence_proxy_async();
  __syncthreads();

  const int row = thread / 32 * 16 + thread % 32 / 4, lane = thread % 4;
  uint32_t registers[2][4];
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 4; ++i) {
      const uint8_t* at = a + (row + i % 2 * 8) * kBytesDepth + step * 32 + lane * 4 + i / 2 * 16;
      registers[step][i] = at[0] | at[1] << 8 | at[2] << 16 | uint32_t{at[3]} << 24;
    }
  }
  const ptx::SwizzledMatrix<kRowBytes> a_rows(ptx::shared_address(shared.a), 0);
  const ptx::SwizzledMatrix<kRowBytes> b_rows(ptx::shared_address(shared.b), 0);
  float sums[kN / 2];
  const auto sum_steps = [&](float* to, const auto& multiply_step) {
    for (float& x : sums) x = kNan;  // the first step must discard it
    ptx::keep_here(sums);
    ptx::wgmma_fence();
    for (int step = 0; step < 2; ++step) multiply_step(step);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::keep_here(sums);
    for (int i = 0; i < kN / 2; ++i) {
      to[(row + i / 2 % 2 * 8) * kN + i / 4 * 8 + lane * 2 + i % 2] = sums[i];
    }
  };
  sum_steps(d, [&](int step) {
    ptx::Wgmma<kN>::multiply_shared_e4m3(sums, a_rows.advance(step * 32), b_rows.advance(step * 32),
                                         step > 0);
  });
  sum_steps(d_registers, [&](int step) {
    ptx::Wgmma<kN>::multiply_registers_e4m3(sums, registers[step], b_rows.advance(step * 32),
                                            step > 0);
  });
}

// Small integers, so that products and sums are exact.
std::vector<uint8_t> byte_integers(size_t count, unsigned seed) {
  std::vector<uint8_t> values(count);
  for (uint8_t& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = float_to_e4m3(static_cast<float>(static_cast<int>(seed >> 24) % 9 - 4));
  }
  return values;
}

template <int kN, int kRowBytes>
void expect_byte_products() {
  const std::vector<uint8_t> a = byte_integers(64 * kBytesDepth, 1);
  const std::vector<uint8_t> b = byte_integers(kN * kBytesDepth, 2);
  const OnGpu<uint8_t> a_gpu(a), b_gpu(b);
  const OnGpu<float> d_gpu(64 * kN), d_registers_gpu(64 * kN);
  run(wgmma_e4m3_kernel<kN, kRowBytes>, 1, 128, sizeof(WgmmaBytes<kN, kRowBytes>), a_gpu.data(),
      b_gpu.data(), d_gpu.data(), d_registers_gpu.data());
  const std::vector<float> d = d_gpu.to_host();
  int wrong = 0;
  for (size_t i = 0; i < d.size(); ++i) {
    float expected = 0;
    for (size_t k = 0; k < kBytesDepth; ++k) {
      expected +=
          e4m3_to_float(a[i / kN * kBytesDepth + k]) * e4m3_to_float(b[i % kN * kBytesDepth + k]);
    }
    wrong += d[i] != expected;
  }
  EXPECT_EQ(wrong, 0) << "N " << kN << ", rows of " << kRowBytes << " bytes";
  EXPECT_EQ(d_registers_gpu.to_host(), d) << "A in registers, N " << kN;
}

TEST_F(CudaPtxSm90, WgmmaMultipliesE4m3FromSharedMemoryAndFromRegisters) {
  expect_byte_products<64, 128>();
  expect_byte_products<128, 128>();
  expect_byte_products<256, 128>();
  expect_byte_products<128, 64>();
}

// ---- cvt to e4m3

__global__ void cvt_e4m3_kernel(const float* from, uint32_t* to, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count / 4; i += static_cast<int>(blockDim.x)) {
    to[i] = ptx::cvt_rn_satfinite_e4m3x4(from[4 * i], from[4 * i + 1], from[4 * i + 2],
                                         from[4 * i + 3]);
  }
}

TEST_F(CudaPtxSm90, CvtRoundsToE4m3AsTheHostDoes) {
  std::vector<float> values{448, 464, 465, 1e30F, -480, kNan, 0x1p-10F, 0x1.8p-9F};
  for (int bits = 0; bits < 1 << 16; ++bits) {  // all of bf16
    const float value = bf16_to_float(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) values.push_back(value);
  }
  values.resize(values.size() / 4 * 4);
  const OnGpu<float> from(values);
  const OnGpu<uint32_t> to(values.size() / 4);
  run(cvt_e4m3_kernel, 1, 256, 0, from.data(), to.data(), static_cast<int>(values.size()));
  const std::vector<uint32_t> packed = to.to_host();
  int wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto byte = static_cast<uint8_t>(packed[i / 4] >> i % 4 * 8);
    wrong += byte != float_to_e4m3(values[i]);
  }
  EXPECT_EQ(wrong, 0);
}

// dQ's operand: half of the columns of a matrix with rows along N, starting within a swizzle.
__global__ void __launch_bounds__(128)
    half_columns_kernel(const uint16_t* a, const uint16_t* b, float* d) {
  __shared__ WgmmaShared<64> shared;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 64 * 16; i += 128) shared.a[swizzled(i / 16, i % 16)] = a[i];
  for (int i = thread; i < 16 * 64; i += 128) {
    shared.b_panels[0][swizzled(i / 64, i % 64)] = b[i];
  }
  ptx::fence_proxy_async();
  __syncthreads();
  float sums[16];
  for (float& x : sums) x = kNan;
  ptx::keep_here(sums);
  ptx::wgmma_fence();
  ptx::Wgmma<32>::multiply_shared<__half, ptx::RowsAlong::k, ptx::RowsAlong::mn>(
      sums, ptx::WgmmaMatrix(ptx::shared_address(shared.a), 0),
      ptx::WgmmaMatrix(ptx::shared_address(shared.b_panels) + 64, 0), false);
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
  ptx::keep_here(sums);
  const int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  for (int i = 0; i < 16; ++i) {
    d[(row + i / 2 % 2 * 8) * 32 + i / 4 * 8 + column + i % 2] = sums[i];
  }
}

TEST_F(CudaPtxSm90, WgmmaTakesColumnsFromWithinASwizzle) {
  const std::vector<uint16_t> a = integers(64 * 16, Dtype::fp16, 3);
  const std::vector<uint16_t> b = integers(16 * 64, Dtype::fp16, 4);
  const OnGpu<uint16_t> a_gpu(a), b_gpu(b);
  const OnGpu<float> d_gpu(64 * 32);
  run(half_columns_kernel, 1, 128, 0, a_gpu.data(), b_gpu.data(), d_gpu.data());
  const std::vector<float> d = d_gpu.to_host();
  int wrong = 0;
  for (int i = 0; i < 64 * 32; ++i) {
    float expected = 0;
    for (int k = 0; k < 16; ++k) {
      expected += load_element(a.data(), Dtype::fp16, i / 32 * 16 + k) *
                  load_element(b.data(), Dtype::fp16, k * 64 + 32 + i % 32);
    }
    wrong += d[static_cast<size_t>(i)] != expected;
  }
  EXPECT_EQ(wrong, 0);
}

// ---- stmatrix, red

// Rows of the four matrices are 48 bytes apart, the last one first. Of matrix i a lane holds 1000 i
// + 2 lane and the next integer.
__global__ void stmatrix_kernel(uint16_t* out) {
  __shared__ alignas(16) uint16_t rows[32][24];
  const uint32_t lane = threadIdx.x;
  uint32_t r[4];
  for (uint32_t i = 0; i < 4; ++i) {
    r[i] = (1000 * i + 2 * lane) | (1000 * i + 2 * lane + 1) << 16;
  }
  ptx::stmatrix_x4(ptx::shared_address(rows[31 - lane]), r);
  __syncwarp();
  for (uint32_t i = 0; i < 8; ++i) out[lane * 8 + i] = rows[31 - lane][i];
}

TEST_F(CudaPtxSm90, StmatrixStoresRowsOfFragments) {
  const OnGpu<uint16_t> out(256);
  run(stmatrix_kernel, 1, 32, 0, out.data());
  const std::vector<uint16_t> values = out.to_host();
  for (size_t i = 0; i < 256; ++i) {
    EXPECT_EQ(values[i], 1000 * (i / 64) + i % 64) << i;  // lanes 4 r to 4 r + 3 hold row r
  }
}

// As above, each matrix stored as its transpose.
__global__ void stmatrix_trans_kernel(uint16_t* out) {
  __shared__ alignas(16) uint16_t rows[32][24];
  const uint32_t lane = threadIdx.x;
  uint32_t r[4];
  for (uint32_t i = 0; i < 4; ++i) {
    r[i] = (1000 * i + 2 * lane) | (1000 * i + 2 * lane + 1) << 16;
  }
  ptx::stmatrix_x4_trans(ptx::shared_address(rows[31 - lane]), r);
  __syncwarp();
  for (uint32_t i = 0; i < 8; ++i) out[lane * 8 + i] = rows[31 - lane][i];
}

TEST_F(CudaPtxSm90, StmatrixStoresTransposes) {
  const OnGpu<uint16_t> out(256);
  run(stmatrix_trans_kernel, 1, 32, 0, out.data());
  const std::vector<uint16_t> values = out.to_host();
  for (size_t i = 0; i < 256; ++i) {
    const size_t row = i / 8 % 8, column = i % 8;  // of lanes 4 column to 4 column + 3
    EXPECT_EQ(values[i], 1000 * (i / 64) + 8 * column + row) << i;
  }
}

__global__ void red_v4_kernel(float* sums) {
  const float x = static_cast<float>(1 + blockIdx.x);
  ptx::red_add_v4_f32(sums + threadIdx.x % 2 * 4, {x, 2 * x, 3 * x, 4 * x});
}

TEST_F(CudaPtxSm90, RedAddsFourAtATime) {
  const OnGpu<float> sums(8, 0.5f);
  run(red_v4_kernel, 100, 64, 0, sums.data());
  const std::vector<float> values = sums.to_host();
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(values[i], 0.5f + 32 * 5050 * static_cast<float>(1 + i % 4));
  }
}

// ---- barrier

// Two of three warps; all threads vote true, or all but one.
__global__ void barrier_and_kernel(int* out) {
  if (threadIdx.x >= 64) return;
  out[threadIdx.x] = ptx::barrier_and(1, 64, true);
  out[64 + threadIdx.x] = ptx::barrier_and(1, 64, threadIdx.x != 40);
  out[128 + threadIdx.x] = ptx::barrier_and(1, 64, false);
}

TEST_F(CudaPtxSm90, BarrierAndTellsAllWhetherAllSaidYes) {
  const OnGpu<int> out(192, -1);
  run(barrier_and_kernel, 1, 96, 0, out.data());
  const std::vector<int> values = out.to_host();
  for (size_t i = 0; i < 192; ++i) EXPECT_EQ(values[i], i < 64) << i;
}

// ---- mbarrier

// The number of times that the barrier answers no before the phase with this parity is complete; -1
// if it never completes.
__device__ int refusals(uint32_t barrier, uint32_t parity) {
  for (int i = 0; i < 1000; ++i) {
    if (ptx::mbarrier_try_wait_parity(barrier, parity)) return i;
  }
  return -1;
}

// Records at the start, and after each of six arrivals at a barrier for three, whether the phases
// with parity 0 and 1 are complete: bits 0 and 1 by the test that may wait, bits 2 and 3 by the
// test that does not.
__global__ void arrivals_kernel(int* out) {
  __shared__ uint64_t memory;
  const uint32_t barrier = ptx::shared_address(&memory);
  ptx::mbarrier_init(barrier, 3);
  ptx::fence_mbarrier_init();
  for (int i = 0; i < 7; ++i) {
    if (i > 0) ptx::mbarrier_arrive(barrier);
    out[i] = ptx::mbarrier_try_wait_parity(barrier, 0) |
             ptx::mbarrier_try_wait_parity(barrier, 1) << 1 |
             ptx::mbarrier_test_wait_parity(barrier, 0) << 2 |
             ptx::mbarrier_test_wait_parity(barrier, 1) << 3;
  }
}

TEST_F(CudaPtxSm90, MbarrierCountsArrivalsAndPhases) {
  const OnGpu<int> out(7, -1);
  run(arrivals_kernel, 1, 1, 0, out.data());
  EXPECT_EQ(out.to_host(), (std::vector<int>{10, 10, 10, 5, 5, 5, 10}));
}

// One thread passes a value to another and back, one phase each way.
__global__ void hand_over_kernel(int* wrong) {
  __shared__ uint64_t full_memory, empty_memory;
  __shared__ volatile int value;
  const uint32_t full = ptx::shared_address(&full_memory),
                 empty = ptx::shared_address(&empty_memory);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full, 1);
    ptx::mbarrier_init(empty, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  for (int round = 0; round < 1000; ++round) {
    const uint32_t parity = round % 2;
    if (threadIdx.x == 0) {
      if (refusals(empty, parity ^ 1) < 0) atomicAdd(wrong, 1);
      value = round;
      ptx::mbarrier_arrive(full);
    } else if (threadIdx.x == 32) {
      if (refusals(full, parity) < 0 || value != round) atomicAdd(wrong, 1);
      ptx::mbarrier_arrive(empty);
    }
  }
}

TEST_F(CudaPtxSm90, MbarriersHandOnAValue) {
  const OnGpu<int> wrong(1);
  run(hand_over_kernel, 1, 64, 0, wrong.data());
  EXPECT_EQ(wrong.to_host()[0], 0);
}

// ---- cp.async.bulk.tensor

constexpr int kBoxRows = 16;

struct Coordinates {
  int column, row, head, batch;
};

// Loads a box to shared memory in two halves of its rows, with maps for kBoxRows / 2 rows.
// `complete` records the state of the barrier before, after one half alone, and after both.
__global__ void load_kernel(const __grid_constant__ CUtensorMap tensor, Coordinates at,
                            uint16_t* out, int* complete) {
  __shared__ alignas(1024) uint16_t box[kBoxRows * 64];
  __shared__ uint64_t memory;
  const uint32_t barrier = ptx::shared_address(&memory);
  constexpr int kHalf = kBoxRows / 2;
  ptx::prefetch_tensormap(tensor);
  ptx::mbarrier_init(barrier, 1);
  ptx::fence_mbarrier_init();
  ptx::mbarrier_arrive_expect_tx(barrier, sizeof(box));
  complete[0] = ptx::mbarrier_try_wait_parity(barrier, 0);
  ptx::cp_async_bulk_prefetch_tensor_4d(tensor, at.column, at.row, at.head, at.batch);
  const auto load = [&](int half, ptx::CachePolicy policy) {
    ptx::cp_async_bulk_tensor_4d(ptx::shared_address(box) + half * kHalf * 128, tensor, at.column,
                                 at.row + half * kHalf, at.head, at.batch, barrier, policy);
  };
  load(0, ptx::CachePolicy::evict_first);
  for (const long long start = clock64(); clock64() - start < 100000;) {
  }
  complete[1] = ptx::mbarrier_try_wait_parity(barrier, 0);
  load(1, ptx::CachePolicy::evict_last);
  complete[2] = refusals(barrier, 0) >= 0;
  for (int i = 0; i < kBoxRows * 64; ++i) out[i] = box[i];
}

// Loads 8 values of one row of floats.
__global__ void load_floats_kernel(const __grid_constant__ CUtensorMap tensor, int column, int row,
                                   float* out, int* complete) {
  __shared__ alignas(128) float values[8];
  __shared__ uint64_t memory;
  const uint32_t barrier = ptx::shared_address(&memory);
  ptx::mbarrier_init(barrier, 1);
  ptx::fence_mbarrier_init();
  ptx::mbarrier_arrive_expect_tx(barrier, sizeof(values));
  complete[0] = ptx::mbarrier_try_wait_parity(barrier, 0);
  ptx::cp_async_bulk_tensor_2d(ptx::shared_address(values), tensor, column, row, barrier);
  complete[1] = refusals(barrier, 0) >= 0;
  for (int i = 0; i < 8; ++i) out[i] = values[i];
}

TEST_F(CudaPtxSm90, BulkCopiesOfRowsOfFloatsArriveAndFillUpWithZeros) {
  constexpr int kRowsOfFloats = 3, kFloats = 20;
  std::vector<float> values(kRowsOfFloats * kFloats);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  const OnGpu<float> from(values), out(8, -1);
  const OnGpu<int> complete(2, -1);
  run(load_floats_kernel, 1, 1, 0, sm90::float_rows_map(from.data(), kRowsOfFloats, kFloats, 8), 16,
      1, out.data(), complete.data());
  EXPECT_EQ(complete.to_host(), (std::vector<int>{0, 1}));
  EXPECT_EQ(out.to_host(), (std::vector<float>{37, 38, 39, 40, 0, 0, 0, 0}));
}

__global__ void add_kernel(float* to, int count) {
  __shared__ alignas(16) float values[64];
  for (int i = 0; i < 64; ++i) values[i] = static_cast<float>(i + 1);
  ptx::fence_proxy_async();
  ptx::cp_reduce_async_bulk_add_f32(to, ptx::shared_address(values), count * 4);
  ptx::cp_async_bulk_commit_group();
  ptx::cp_async_bulk_wait_group_read();
}

TEST_F(CudaPtxSm90, BulkReductionsAddToEachElementOnce) {
  const OnGpu<float> sums(40, 100);
  run(add_kernel, 50, 1, 0, sums.data() + 4, 32);
  std::vector<float> expected(40, 100);
  for (size_t i = 0; i < 32; ++i) expected[i + 4] += 50 * static_cast<float>(i + 1);
  EXPECT_EQ(sums.to_host(), expected);
}

// Stores a box from shared memory whose element i is i + 1.
__global__ void store_kernel(const __grid_constant__ CUtensorMap tensor, Coordinates at) {
  __shared__ alignas(1024) uint16_t box[kBoxRows * 64];
  for (int i = 0; i < kBoxRows * 64; ++i) {
    box[swizzled(i / 64, i % 64)] = static_cast<uint16_t>(i + 1);
  }
  ptx::fence_proxy_async();
  ptx::cp_async_bulk_tensor_4d(tensor, at.column, at.row, at.head, at.batch,
                               ptx::shared_address(box));
  ptx::cp_async_bulk_commit_group();
  ptx::cp_async_bulk_wait_group_read();
}

// A tensor [2, 3, 40, 72]: boxes end within it, at its edges and beyond. A loaded box also begins
// before it; on an H200 a store that did so was an illegal instruction.
struct TmaCase {
  Layout layout;
  Coordinates at;
};
const TmaCase kTmaCases[] = {
    {Layout::bshd, {0, 0, 0, 0}},  {Layout::bhsd, {0, 8, 2, 1}},   {Layout::bshd, {64, 3, 1, 1}},
    {Layout::bshd, {0, 32, 2, 0}}, {Layout::bhsd, {64, 33, 2, 1}}, {Layout::bhsd, {0, 40, 0, 0}},
};
const TmaCase kTmaLoads[] = {{Layout::bshd, {0, -5, 1, 1}}};
constexpr int64_t kBatch = 2, kHeads = 3, kRows = 40, kColumns = 72;

// The index in the tensor of element (row, column) of a box; -1 outside the tensor.
int64_t index_in_tensor(const TensorView& t, const Coordinates& at, int row, int column) {
  const int64_t r = at.row + row, c = at.column + column;
  return r < 0 || r >= kRows || c >= kColumns ? -1 : t.offset(at.batch, at.head, r) + c;
}

TEST_F(CudaPtxSm90, BulkCopiesFillUpWithZerosAndCountTheirBytes) {
  std::vector<uint16_t> values(kBatch * kHeads * kRows * kColumns);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i + 1);
  const OnGpu<uint16_t> memory(values);
  std::vector<TmaCase> cases(std::begin(kTmaCases), std::end(kTmaCases));
  cases.insert(cases.end(), std::begin(kTmaLoads), std::end(kTmaLoads));
  for (const TmaCase& one : cases) {
    const TensorView t =
        dense_view<void>(memory.data(), Dtype::fp16, one.layout, kBatch, kHeads, kRows, kColumns);
    const OnGpu<uint16_t> out(kBoxRows * 64, uint16_t{0xFFFF});
    const OnGpu<int> complete(3, -1);
    run(load_kernel, 1, 1, 0, sm90::tensor_map(t, kBoxRows / 2), one.at, out.data(),
        complete.data());
    EXPECT_EQ(complete.to_host(), (std::vector<int>{0, 0, 1}));
    const std::vector<uint16_t> box = out.to_host();
    int wrong = 0;
    for (int i = 0; i < kBoxRows * 64; ++i) {
      const int64_t index = index_in_tensor(t, one.at, i / 64, i % 64);
      wrong += box[static_cast<size_t>(swizzled(i / 64, i % 64))] !=
               (index < 0 ? 0 : values[static_cast<size_t>(index)]);
    }
    EXPECT_EQ(wrong, 0) << one.at.column << ", " << one.at.row << ", " << name(one.layout);
  }
}

TEST_F(CudaPtxSm90, BulkStoresLeaveWhatIsOutsideAlone) {
  constexpr uint16_t kBefore = 0x5555;
  for (const TmaCase& one : kTmaCases) {
    const OnGpu<uint16_t> memory(kBatch * kHeads * kRows * kColumns, kBefore);
    const TensorView t =
        dense_view<void>(memory.data(), Dtype::bf16, one.layout, kBatch, kHeads, kRows, kColumns);
    std::vector<uint16_t> expected = memory.to_host();
    for (int i = 0; i < kBoxRows * 64; ++i) {
      const int64_t index = index_in_tensor(t, one.at, i / 64, i % 64);
      if (index >= 0) expected[static_cast<size_t>(index)] = static_cast<uint16_t>(i + 1);
    }
    run(store_kernel, 1, 1, 0, sm90::tensor_map(t, kBoxRows), one.at);
    EXPECT_EQ(memory.to_host(), expected)
        << one.at.column << ", " << one.at.row << ", " << name(one.layout);
  }
}

// ---- Copies of the rows of one request

// Copies a request's rows of one head by boxes, the last two of which reach beyond its end, and
// counts elements there that were not read as zeros.
struct RequestCopy {
  sm90::RequestMap from, to;
  int request, head, first, rows;
  int* not_zero;
};
__global__ void request_kernel(const __grid_constant__ RequestCopy copy) {
  __shared__ alignas(1024) uint16_t box[kBoxRows * 64];
  __shared__ uint64_t barrier;
  const uint32_t at = ptx::shared_address(box), full = ptx::shared_address(&barrier);
  ptx::mbarrier_init(full, 1);
  ptx::fence_mbarrier_init();
  const auto rows_of = [&](const sm90::RequestMap& map) {
    return sm90::RowsOfRequest(map.steps, copy.request, copy.head, copy.first, copy.rows);
  };
  for (int row = 0, parity = 0; row < copy.rows + 2 * kBoxRows; row += kBoxRows, parity ^= 1) {
    rows_of(copy.from).prefetch(copy.from.map, 0, row);
    ptx::mbarrier_arrive_expect_tx(full, sizeof box);
    rows_of(copy.from).load(at, copy.from.map, 0, row, full, ptx::CachePolicy::evict_first);
    while (!ptx::mbarrier_try_wait_parity(full, parity)) {
    }
    for (int i = 0; i < kBoxRows * 64; ++i) {
      if (row + i / 64 >= copy.rows && box[swizzled(i / 64, i % 64)] != 0) ++*copy.not_zero;
    }
    rows_of(copy.to).store(copy.to.map, 0, row, at);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_0();
  }
}

TEST_F(CudaPtxSm90, BulkCopiesOfARequestEndWhereItEnds) {
  const std::vector<RequestLengths> requests{{0, 0}, {5, 5},   {kBoxRows, 1},
                                             {0, 3}, {83, 90}, {1, 1}};
  const Lengths lengths(requests);
  const RequestRows& rows = lengths.queries();
  constexpr int64_t kColumns = 64;
  const auto expect_only_the_rows = [&](const auto& view_of, int64_t elements, bool packed) {
    std::vector<uint16_t> values(static_cast<size_t>(elements));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i % 60000 + 1);
    constexpr uint16_t kBefore = 0;
    const OnGpu<uint16_t> from(values), to(values.size(), kBefore);
    std::vector<uint16_t> expected(values.size(), kBefore);
    const OnGpu<int> not_zero(1, 0);
    const TensorView source = view_of(from.data()), target = view_of(to.data());
    for (int64_t b = 0; b < rows.requests(); ++b) {
      for (int64_t h = 0; h < kHeads; ++h) {
        run(request_kernel, 1, 1, 0,
            RequestCopy{.from = sm90::request_map(source, kBoxRows),
                        .to = sm90::request_map(target, kBoxRows),
                        .request = static_cast<int>(b),
                        .head = static_cast<int>(h),
                        .first = packed ? static_cast<int>(rows.first(b)) : 0,
                        .rows = static_cast<int>(rows.count(b)),
                        .not_zero = not_zero.data()});
        for (int64_t row = 0; row < rows.count(b); ++row) {
          const auto first = static_cast<size_t>(source.offset(b, h, row));
          std::copy_n(values.begin() + static_cast<ptrdiff_t>(first), kColumns,
                      expected.begin() + static_cast<ptrdiff_t>(first));
        }
      }
    }
    EXPECT_EQ(not_zero.to_host(), std::vector<int>{0});
    EXPECT_EQ(to.to_host(), expected);
  };
  const auto packed = [&](uint16_t* data) {
    return ragged_view<void>(data, Dtype::bf16, rows, kHeads, kColumns);
  };
  const auto padded = [&](uint16_t* data) {
    return dense_view<void>(data, Dtype::bf16, Layout::bhsd, rows.requests(), kHeads,
                            rows.longest(), kColumns);
  };
  // Batches are no whole number of rows apart.
  const auto with_gaps = [&](uint16_t* data) {
    TensorView t = dense_view<void>(data, Dtype::bf16, Layout::bshd, rows.requests(), kHeads,
                                    rows.longest(), kColumns);
    t.batch_stride += 8;
    return t;
  };
  const int64_t all = rows.requests() * rows.longest() * kHeads * kColumns;
  expect_only_the_rows(packed, rows.total() * kHeads * kColumns, true);
  expect_only_the_rows(padded, all, false);
  expect_only_the_rows(with_gaps, all + rows.requests() * 8, false);
}

// ---- Clusters

constexpr int kClusterSize = 4, kClusters = 3;

// Each thread block of a cluster sends six values to each: its number in the grid, that of its
// cluster and that of the receiver, in each of both forms.
struct ClusterArguments {
  float* received;  // [thread blocks, kClusterSize senders, 6]
};
__global__ void cluster_kernel(const ClusterArguments a) {
  __shared__ alignas(16) float4 fours[kClusterSize];
  __shared__ alignas(8) float2 twos[kClusterSize];
  __shared__ uint64_t barrier;
  const int rank = ptx::cluster_ctarank(), to = static_cast<int>(threadIdx.x);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(ptx::shared_address(&barrier), 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&barrier), sizeof(fours) + sizeof(twos));
  }
  ptx::barrier_cluster_arrive_relaxed();
  ptx::barrier_cluster_wait();
  const auto number = static_cast<float>(blockIdx.z);
  const auto cluster = static_cast<float>(ptx::clusterid_z()), receiver = static_cast<float>(to);
  const uint32_t there = ptx::mapa(ptx::shared_address(&barrier), to);
  ptx::st_async_v4(ptx::mapa(ptx::shared_address(&fours[rank]), to), {number, cluster, receiver, 1},
                   there);
  ptx::st_async_v2(ptx::mapa(ptx::shared_address(&twos[rank]), to), {number, receiver}, there);
  while (!ptx::mbarrier_try_wait_parity(ptx::shared_address(&barrier), 0)) {
  }
  const int from = static_cast<int>(threadIdx.x);
  float* received = a.received + (blockIdx.z * kClusterSize + threadIdx.x) * 6;
  const float4 four = fours[from];
  const float2 two = twos[from];
  received[0] = four.x, received[1] = four.y, received[2] = four.z, received[3] = four.w;
  received[4] = two.x, received[5] = two.y;
}

TEST_F(CudaPtxSm90, ThreadBlocksOfAClusterSendToEachOther) {
  constexpr int kBlocks = kClusterSize * kClusters;
  OnGpu<float> received(kBlocks * kClusterSize * 6, kNan);
  const CudaKernel<ClusterArguments> kernel{"cluster", cluster_kernel, kClusterSize, 0};
  sm90::launch_clusters(kernel, {.z = kBlocks, .cluster_size = kClusterSize},
                        ClusterArguments{received.data()}, Stream{});
  finish_or_exit({Stream{}}, 20, "the cluster");
  const std::vector<float> values = received.to_host();
  for (int block = 0; block < kBlocks; ++block) {
    for (int rank = 0; rank < kClusterSize; ++rank) {
      const int cluster = block / kClusterSize;
      const auto sender = static_cast<float>(cluster * kClusterSize + rank);
      const auto own_rank = static_cast<float>(block % kClusterSize);
      const float wanted[] = {sender, static_cast<float>(cluster), own_rank, 1, sender, own_rank};
      for (int i = 0; i < 6; ++i) {
        EXPECT_EQ(values[static_cast<size_t>((block * kClusterSize + rank) * 6 + i)], wanted[i])
            << "thread block " << block << ", sender " << rank << ", value " << i;
      }
    }
  }
}

// Each thread block of a pair copies floats to the other, and then tells it that it has received
// its own.
constexpr int kCopied = 256;
struct PairArguments {
  float* received;  // [thread blocks, kCopied]
};
__global__ void __cluster_dims__(2) pair_kernel(const PairArguments a) {
  __shared__ alignas(16) float sent[kCopied];
  __shared__ alignas(16) float received[kCopied];
  __shared__ uint64_t full, done;
  const int peer = 1 - ptx::cluster_ctarank();
  const uint32_t full_address = ptx::shared_address(&full),
                 done_address = ptx::shared_address(&done);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full_address, 1);
    ptx::mbarrier_init(done_address, kCopied);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(full_address, sizeof received);
  }
  sent[threadIdx.x] = static_cast<float>(blockIdx.x * kCopied + threadIdx.x);
  ptx::fence_proxy_async();
  __syncthreads();
  ptx::barrier_cluster_arrive_relaxed();
  ptx::barrier_cluster_wait();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk_to_cluster(ptx::mapa(ptx::shared_address(received), peer),
                                  ptx::shared_address(sent), sizeof sent,
                                  ptx::mapa(full_address, peer));
  }
  while (!ptx::mbarrier_try_wait_parity(full_address, 0)) {
  }
  a.received[blockIdx.x * kCopied + threadIdx.x] = received[threadIdx.x];
  ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(done_address, peer));
  while (!ptx::mbarrier_try_wait_parity(done_address, 0)) {
  }
}

TEST_F(CudaPtxSm90, ThreadBlocksOfAPairCopyToEachOther) {
  constexpr int kBlocks = 6;
  OnGpu<float> received(kBlocks * kCopied, kNan);
  const CudaKernel<PairArguments> kernel{"pairs", pair_kernel, kCopied, 0};
  launch_kernel(kernel, kBlocks, PairArguments{received.data()}, Stream{});
  finish_or_exit({Stream{}}, 20, "the pairs");
  const std::vector<float> values = received.to_host();
  for (int block = 0; block < kBlocks; ++block) {
    for (int i = 0; i < kCopied; ++i) {
      ASSERT_EQ(values[static_cast<size_t>(block * kCopied + i)],
                static_cast<float>((block ^ 1) * kCopied + i))
          << "thread block " << block << ", float " << i;
    }
  }
}

// ---- atom

constexpr unsigned kLimit = 6;

// Every thread counts, and adds up what was there before.
template <bool kOrders>
__global__ void count_kernel(unsigned* counter, unsigned* seen) {
  const unsigned before = kOrders ? ptx::atom_inc_acq_rel_gpu(counter, kLimit)
                                  : ptx::atom_inc_relaxed_gpu(counter, kLimit);
  atomicAdd(seen + before % (kLimit + 2), 1u);
}

void expect_counts(void (*kernel)(unsigned*, unsigned*)) {
  OnGpu<unsigned> counter(1, ~0u), seen(kLimit + 2, 0);
  run(kernel, 10, 7 * 32, 0, counter.data(), seen.data());
  // UINT_MAX is at or above the limit: the first of 2,240 counts sets the counter to 0. The others
  // see 0 to 6 in turn.
  EXPECT_EQ(counter.to_host()[0], 2239 % 7);
  std::vector<unsigned> wanted(kLimit + 2, 0);
  ++wanted[~0u % (kLimit + 2)];
  for (unsigned i = 0; i < 2239; ++i) ++wanted[i % 7];
  EXPECT_EQ(seen.to_host(), wanted);
}

TEST_F(CudaPtxSm90, AtomIncCountsToItsLimitAndBeginsAgain) {
  expect_counts(count_kernel<true>);
  expect_counts(count_kernel<false>);
}

// ---- setmaxnreg

// Three warpgroups have all registers; two want more, and the first releases some late. Records
// when the first released them (0), and when the others continued (1, 2), by the multiprocessor's
// clock.
__global__ void __launch_bounds__(384, 1) registers_kernel(long long* when) {
  const unsigned warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (warpgroup == 0) {
    for (const long long start = clock64(); clock64() - start < 100000;) {
    }
    __syncwarp();
    if (threadIdx.x == 0) when[0] = clock64();
    ptx::setmaxnreg_dec<40>();
  } else {
    ptx::setmaxnreg_inc<232>();
    if (threadIdx.x % 128 == 0) when[warpgroup] = clock64();
  }
}

TEST_F(CudaPtxSm90, SetmaxnregWaitsForRegistersGivenUp) {
  cudaFuncAttributes attributes;
  FLASHBENCH_CUDA(cudaFuncGetAttributes(&attributes, registers_kernel));
  ASSERT_EQ(attributes.numRegs, 168) << "a thread block then has none to spare";
  const OnGpu<long long> when(3, -1);
  run(registers_kernel, 1, 384, 0, when.data());
  const std::vector<long long> clock = when.to_host();
  EXPECT_GT(clock[1], clock[0]);
  EXPECT_GT(clock[2], clock[0]);
}

}  // namespace
}  // namespace flashbench::kernels
