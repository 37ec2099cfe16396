// Tests each wrapper of a PTX instruction that all supported GPUs have alone, against its header's
// description.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "attention/half.h"
#include "device/cuda.h"
#include "kernels/ptx/barrier.h"
#include "kernels/ptx/cp_async.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/ld.h"
#include "kernels/ptx/ldmatrix.h"
#include "kernels/ptx/mma.h"
#include "kernels/ptx/red.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/st.h"
#include "kernels/ptx/target.h"
#include "kernels/ptx/tid.h"
#include "tests/kernels/on_gpu.h"

namespace flashbench::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CudaPtx : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  }
};

// ---- cvt, ex2

template <typename T>
__global__ void cvt_kernel(const float* in, uint32_t* out) {
  out[threadIdx.x] = ptx::cvt_rn_x2<T>(in[2 * threadIdx.x], in[2 * threadIdx.x + 1]);
}

// Ties, the ends of both ranges, subnormal results, infinities.
template <typename T>
void expect_rounded(Dtype dtype) {
  const std::vector<float> values{0.f,          -0.f,        1.f / 3,     -3.14159f,  1 + 0x1p-11f,
                                  1 + 0x3p-11f, 1 + 0x1p-8f, 1 + 0x3p-8f, 65504.f,    65519.f,
                                  65520.f,      -1e6f,       0x1p-14f,    0x1.8p-25f, 0x1p-25f,
                                  3.3e38f,      3.4e38f,     0x1p-130f,   kInfinity,  -kInfinity};
  const OnGpu<float> in(values);
  const OnGpu<uint32_t> out(values.size() / 2);
  run(cvt_kernel<T>, 1, static_cast<int>(values.size() / 2), 0, in.data(), out.data());
  const std::vector<uint32_t> packed = out.to_host();
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t expected = 0;
    store_element(&expected, dtype, 0, values[i]);
    EXPECT_EQ(packed[i / 2] >> 16 * (i % 2) & 0xFFFF, expected) << values[i];
  }
}

TEST_F(CudaPtx, CvtRoundsToNearestEvenAndPutsLowFirst) {
  expect_rounded<__half>(Dtype::fp16);
  expect_rounded<__nv_bfloat16>(Dtype::bf16);
}

__global__ void ex2_kernel(const float* in, float* out) {
  out[threadIdx.x] = ptx::ex2_approx_ftz(in[threadIdx.x]);
}

TEST_F(CudaPtx, Ex2IsWithinTwoUlpAndExactAtItsEnds) {
  std::vector<float> values{0.f,    -0.f,    -kInfinity, kInfinity, NAN,
                            -127.f, -1000.f, 129.f,      0x1p-130f};
  while (values.size() < 1024) {
    values.push_back(-126 + 253.9f * static_cast<float>(values.size()) / 1024);
  }
  const OnGpu<float> in(values);
  const OnGpu<float> out(values.size());
  run(ex2_kernel, 1, 1024, 0, in.data(), out.data());
  const std::vector<float> results = out.to_host();
  const float exact[] = {1, 1, 0, kInfinity, NAN, 0, 0, kInfinity, 1};
  for (size_t i = 0; i < std::size(exact); ++i) {
    EXPECT_TRUE(results[i] == exact[i] || (std::isnan(results[i]) && std::isnan(exact[i])))
        << values[i] << " gives " << results[i];
  }
  for (size_t i = std::size(exact); i < values.size(); ++i) {
    EXPECT_NEAR(results[i] / std::exp2(static_cast<double>(values[i])), 1, 0x1p-22) << values[i];
  }
}

// ---- mma, ldmatrix

// Small integers, so that products and sums are exact.
template <typename T>
std::vector<T> integers(size_t count, unsigned seed) {
  std::vector<T> values;
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    values.push_back(T(static_cast<float>(static_cast<int>(seed >> 24) % 9 - 4)));
  }
  return values;
}

// A [16, 16], B [16, 8] and D [16, 8], all row-major.
template <typename T>
__global__ void mma_kernel(const T* a, const T* b, float* d) {
  const int row = static_cast<int>(threadIdx.x) / 4, column = static_cast<int>(threadIdx.x) % 4 * 2;
  const auto pair = [](const T& low, const T& high) {
    T both[2] = {low, high};
    uint32_t packed;
    memcpy(&packed, both, sizeof(packed));
    return packed;
  };
  uint32_t fragment[4];
  for (int i = 0; i < 4; ++i) {
    const T* at = a + (row + i % 2 * 8) * 16 + column + i / 2 * 8;
    fragment[i] = pair(at[0], at[1]);
  }
  uint32_t b_fragment[2];
  for (int i = 0; i < 2; ++i) {
    const T* at = b + (column + i * 8) * 8 + row;
    b_fragment[i] = pair(at[0], at[8]);
  }
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = d[(row + i / 2 * 8) * 8 + column + i % 2];
  ptx::mma_m16n8k16<T>(sums, fragment, b_fragment[0], b_fragment[1]);
  for (int i = 0; i < 4; ++i) d[(row + i / 2 * 8) * 8 + column + i % 2] = sums[i];
}

template <typename T>
void expect_mma_product() {
  const std::vector<T> a = integers<T>(16 * 16, 1), b = integers<T>(16 * 8, 2);
  const std::vector<float> before = integers<float>(16 * 8, 3);
  const OnGpu<T> a_gpu(a), b_gpu(b);
  const OnGpu<float> d_gpu(before);
  run(mma_kernel<T>, 1, 32, 0, a_gpu.data(), b_gpu.data(), d_gpu.data());
  const std::vector<float> d = d_gpu.to_host();
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      float expected = before[row * 8 + column];
      for (size_t k = 0; k < 16; ++k) {
        expected += static_cast<float>(a[row * 16 + k]) * static_cast<float>(b[k * 8 + column]);
      }
      EXPECT_EQ(d[row * 8 + column], expected) << row << ", " << column;
    }
  }
}

TEST_F(CudaPtx, MmaAddsAProduct) {
  expect_mma_product<__half>();
  expect_mma_product<__nv_bfloat16>();
}

// Rows of the four matrices are 48 bytes apart, the last one first. Elements are numbered, 64 per
// matrix.
__global__ void ldmatrix_kernel(uint32_t* plain, uint32_t* transposed) {
  __shared__ alignas(16) uint16_t rows[32][24];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 8; ++i) rows[31 - lane][i] = static_cast<uint16_t>(lane * 8 + i);
  __syncwarp();
  uint32_t r[4];
  ptx::ldmatrix_x4(r, ptx::shared_address(rows[31 - lane]));
  for (int i = 0; i < 4; ++i) plain[i * 32 + lane] = r[i];
  ptx::ldmatrix_x4_trans(r, ptx::shared_address(rows[31 - lane]));
  for (int i = 0; i < 4; ++i) transposed[i * 32 + lane] = r[i];
}

TEST_F(CudaPtx, LdmatrixDealsOutRowsOrColumns) {
  const OnGpu<uint32_t> plain_gpu(128), transposed_gpu(128);
  run(ldmatrix_kernel, 1, 32, 0, plain_gpu.data(), transposed_gpu.data());
  const std::vector<uint32_t> plain = plain_gpu.to_host(), transposed = transposed_gpu.to_host();
  for (uint32_t matrix = 0; matrix < 4; ++matrix) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
      const auto element = [&](uint32_t row, uint32_t column) {
        return matrix * 64 + row * 8 + column;
      };
      const uint32_t line = lane / 4, first = lane % 4 * 2;
      EXPECT_EQ(plain[matrix * 32 + lane], element(line, first) | element(line, first + 1) << 16);
      EXPECT_EQ(transposed[matrix * 32 + lane], element(first, line) | element(first + 1, line)
                                                                           << 16);
    }
  }
}

// ---- cp.async, ld, st, red

// Lane l copies l bytes; lane 0 copies none, from no address. Then a second group.
__global__ void cp_async_kernel(const char* from, char* first, char* second) {
  __shared__ alignas(16) char to[2][17][16];
  const int lane = static_cast<int>(threadIdx.x);
  memset(to[0][lane], 0x7E, 16);
  memset(to[1][lane], 0x7E, 16);
  ptx::cp_async_16(ptx::shared_address(to[0][lane]), lane == 0 ? nullptr : from + 16 * lane, lane);
  ptx::cp_async_commit_group();
  ptx::cp_async_16(ptx::shared_address(to[1][lane]), from + 16 * lane, 16);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<1>();
  memcpy(first + 16 * lane, to[0][lane], 16);
  ptx::cp_async_wait_group<0>();
  memcpy(second + 16 * lane, to[1][lane], 16);
}

TEST_F(CudaPtx, CpAsyncCopiesSomeBytesAndFillsUp) {
  std::vector<char> values(17 * 16);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(1 + i % 100);
  const OnGpu<char> from(values), first(values.size()), second(values.size());
  run(cp_async_kernel, 1, 17, 0, from.data(), first.data(), second.data());
  const std::vector<char> some = first.to_host();
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(some[i], i % 16 < i / 16 ? values[i] : 0) << i;
  }
  EXPECT_EQ(second.to_host(), values);
}

__global__ void shared_kernel(uint4* out) {
  __shared__ alignas(16) uint32_t words[4 * 32];
  const uint32_t lane = threadIdx.x;
  for (uint32_t i = 0; i < 4; ++i) {
    ptx::st_shared(ptx::shared_address(words) + 4 * (i * 32 + lane), 1000 * i + lane);
  }
  __syncwarp();
  out[lane] = ptx::ld_shared_v4(ptx::shared_address(&words[4 * lane]));
}

TEST_F(CudaPtx, StAndLdOfSharedMemoryMeet) {
  const OnGpu<uint4> out(32);
  run(shared_kernel, 1, 32, 0, out.data());
  const std::vector<uint4> values = out.to_host();
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint4 v = values[lane];
    const uint32_t words[] = {v.x, v.y, v.z, v.w};
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t at = 4 * lane + i;
      EXPECT_EQ(words[i], 1000 * (at / 32) + at % 32);
    }
  }
}

// Thread block 0 sends messages, thread block 1 reads and answers them. The reader's L1 cache holds
// the previous content of each.
constexpr int kWords = 64, kMessages = 1000;
__global__ void message_kernel(int* message, int* sent, int* read, int* wrong) {
  for (int number = 1; number <= kMessages; ++number) {
    if (blockIdx.x == 0) {
      while (ptx::ld_acquire_gpu(read) != number - 1) {
      }
      for (int i = 0; i < kWords; ++i) message[i] = number;
      ptx::st_release_gpu(sent, number);
    } else {
      int before = 0;
      for (int i = 0; i < kWords; ++i) before |= message[i];
      while (ptx::ld_acquire_gpu(sent) != number) {
      }
      for (int i = 0; i < kWords; ++i) *wrong += message[i] != number;
      *wrong += before > kMessages;  // keeps the previous reads
      ptx::st_release_gpu(read, number);
    }
  }
}

TEST_F(CudaPtx, WhatWasWrittenBeforeAReleaseIsSeenAfterAnAcquire) {
  const OnGpu<int> message(kWords), sent(1), read(1), wrong(1);
  run(message_kernel, 2, 1, 0, message.data(), sent.data(), read.data(), wrong.data());
  EXPECT_EQ(wrong.to_host()[0], 0);
  EXPECT_EQ(read.to_host()[0], kMessages);
}

// Two thread blocks count in turn; each sees what the other stores.
__global__ void count_kernel(unsigned* counts) {
  for (unsigned number = 1; number <= kMessages; ++number) {
    if (blockIdx.x == 0) ptx::st_relaxed_gpu(&counts[0], number);
    while (ptx::ld_relaxed_gpu(&counts[1 - blockIdx.x]) != number) {
    }
    if (blockIdx.x == 1) ptx::st_relaxed_gpu(&counts[1], number);
  }
}

TEST_F(CudaPtx, RelaxedStoresReachRelaxedLoads) {
  const OnGpu<unsigned> counts(2);
  run(count_kernel, 2, 1, 0, counts.data());
  for (const unsigned count : counts.to_host()) EXPECT_EQ(count, unsigned{kMessages});
}

// The same with several floats at a time.
template <typename Floats>
__global__ void count_floats_kernel(Floats* counts) {
  const auto load = [](const Floats* from) {
    if constexpr (sizeof(Floats) == 8) {
      return ptx::ld_relaxed_gpu_v2(from);
    } else {
      return ptx::ld_relaxed_gpu_v4(from);
    }
  };
  const auto store = [&](float number) {
    if constexpr (sizeof(Floats) == 8) {
      ptx::st_relaxed_gpu_v2(&counts[blockIdx.x], {number, 2 * number});
    } else {
      ptx::st_relaxed_gpu_v4(&counts[blockIdx.x], {number, 2 * number, 3 * number, 4 * number});
    }
  };
  for (unsigned i = 1; i <= kMessages; ++i) {
    const auto number = static_cast<float>(i);
    if (blockIdx.x == 0) store(number);
    Floats seen;
    bool all;
    do {
      seen = load(&counts[1 - blockIdx.x]);
      all = seen.x == number && seen.y == 2 * number;
      if constexpr (sizeof(Floats) == 16) all &= seen.z == 3 * number && seen.w == 4 * number;
    } while (!all);
    if (blockIdx.x == 1) store(number);
  }
}

TEST_F(CudaPtx, RelaxedStoresOfSeveralFloatsReachRelaxedLoads) {
  const OnGpu<float2> two(2);
  run(count_floats_kernel<float2>, 2, 1, 0, two.data());
  for (const float2& v : two.to_host()) EXPECT_EQ(v.y, 2 * static_cast<float>(kMessages));
  const OnGpu<float4> four(2);
  run(count_floats_kernel<float4>, 2, 1, 0, four.data());
  for (const float4& v : four.to_host()) EXPECT_EQ(v.w, 4 * static_cast<float>(kMessages));
}

__global__ void red_kernel(float* sums) {
  ptx::red_add_f32(sums + threadIdx.x % 8, static_cast<float>(1 + blockIdx.x));
}

TEST_F(CudaPtx, RedAddsUpFromAllThreads) {
  const OnGpu<float> sums(8, 0.5f);
  run(red_kernel, 100, 256, 0, sums.data());
  for (const float sum : sums.to_host()) EXPECT_EQ(sum, 0.5f + 32 * 5050);
}

// ---- barrier, tid, target

// Two warps write and two read, in turn: barrier 1 means written, barrier 2 read.
__global__ void barrier_kernel(int* wrong) {
  constexpr int kThreads = 128, kRounds = 1000;
  __shared__ volatile int value[64];
  const int i = static_cast<int>(threadIdx.x) % 64;
  for (int round = 1; round <= kRounds; ++round) {
    if (threadIdx.x < 64) {
      value[i] = round;
      ptx::barrier_arrive(1, kThreads);
      ptx::barrier_sync(2, kThreads);
    } else {
      ptx::barrier_sync(1, kThreads);
      if (value[63 - i] != round) atomicAdd(wrong, 1);
      ptx::barrier_arrive(2, kThreads);
    }
  }
}

TEST_F(CudaPtx, NamedBarriersWaitForAllThreads) {
  const OnGpu<int> wrong(1);
  run(barrier_kernel, 4, 128, 0, wrong.data());
  EXPECT_EQ(wrong.to_host()[0], 0);
}

__global__ void tid_kernel(int* out) {
  out[threadIdx.x] = ptx::tid_x();
}

TEST_F(CudaPtx, TidIsTheThreadsNumber) {
  const OnGpu<int> out(100, -1);
  run(tid_kernel, 1, 100, 0, out.data());
  const std::vector<int> values = out.to_host();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], i);
}

__global__ void target_kernel(int* out) {
  *out = ptx::has_sm_90() ? 1 : 0;
}

// A later GPU may run code that was compiled for an older one.
TEST_F(CudaPtx, HasSm90IsOfTheCodeThatRuns) {
  const int capability = make_cuda_device(0)->info().compute_capability;
  if (capability > 90) GTEST_SKIP() << "compute capability " << capability << " may be either";
  const OnGpu<int> out(1, -1);
  run(target_kernel, 1, 1, 0, out.data());
  EXPECT_EQ(out.to_host()[0], capability == 90 ? 1 : 0);
}

}  // namespace
}  // namespace flashbench::kernels
