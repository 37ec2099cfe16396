#include "measure/cuda_rates.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <nv/target>

#include "device/cuda_call.h"
#include "inputs/split_mix.cuh"
#include "kernels/ptx/cvt.h"

namespace flashbench::cuda_rates {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 6;  // 1,536 threads, which fit every GPU
constexpr int kChains = 8;                   // per thread, independent, to hide the latency
constexpr int kSteps = 4096;                 // per chain

// Box-Muller transform of two uniform values.
__device__ float normal(uint64_t seed, int64_t index) {
  const uint64_t bits =
      cuda_split_mix((seed + 1) * kSplitMixIncrement + static_cast<uint64_t>(index));
  const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;
  const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cospif(2 * v);
}

__device__ void store(float* to, float value) {
  *to = value;
}
__device__ void store(__half* to, float value) {
  *to = __float2half_rn(value);
}
__device__ void store(__nv_bfloat16* to, float value) {
  *to = __float2bfloat16_rn(value);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) fill_kernel(T* data, int64_t count, uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    store(data + i, normal(seed, i));
  }
}

template <typename T>
void fill(T* data, int64_t count, uint64_t seed, cudaStream_t stream) {
  fill_kernel<<<1024, kThreads, 0, stream>>>(data, count, seed);
  FLASHBENCH_CUDA(cudaGetLastError());
}

__global__ void __launch_bounds__(kThreads)
    copy_kernel(uint4* to, const uint4* from, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    to[i] = from[i];
  }
}

// One step of a chain, for 0 <= a < 1. All kinds stay finite for ever.
struct Ffma {
  __device__ static float step(float x, float a) { return fmaf(x, a, a); }
};
struct Exp2 {
  __device__ static float step(float x, float) {
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
};
// Two instructions and a multiplication, which another pipe does. Packing costs no third: each pair
// is of one value that nothing else needs, and ptxas then rounds the one into the other's register.
struct CvtE4m3 {
  static constexpr int kValues = 4;
  __device__ static float step(float x, float a) {
    float y = x * a;
    NV_IF_TARGET(NV_PROVIDES_SM_89,
                 (y = __uint_as_float(ptx::cvt_rn_satfinite_e4m3x4(y, y, x, x));))
    return y;
  }
};

template <typename Operation>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor) chain_kernel(float* out) {
  // Depends on the block, so that it is in a register: an immediate would halve the rate.
  const float factor = 1 / (2.0f + static_cast<float>(blockIdx.x));
  float chain[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) chain[i] = -0.1f * static_cast<float>(threadIdx.x % 7 + i);
#pragma unroll 4
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) chain[i] = Operation::step(chain[i], factor);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += chain[i];
  if (sum == -1) *out = sum;  // never true, but the compiler cannot know that
}

double operations(int multiprocessors) {
  return static_cast<double>(multiprocessors) * kBlocksPerMultiprocessor * kThreads * kChains *
         kSteps;
}

}  // namespace

void fill_normal_fp32(float* data, int64_t count, uint64_t seed, cudaStream_t stream) {
  fill(data, count, seed, stream);
}
void fill_normal_fp16(void* data, int64_t count, uint64_t seed, cudaStream_t stream) {
  fill(static_cast<__half*>(data), count, seed, stream);
}
void fill_normal_bf16(void* data, int64_t count, uint64_t seed, cudaStream_t stream) {
  fill(static_cast<__nv_bfloat16*>(data), count, seed, stream);
}

void copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  const auto count = static_cast<int64_t>(bytes / sizeof(uint4));
  copy_kernel<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), count);
  FLASHBENCH_CUDA(cudaGetLastError());
}

void ffma(int multiprocessors, float* out, cudaStream_t stream) {
  chain_kernel<Ffma><<<multiprocessors * kBlocksPerMultiprocessor, kThreads, 0, stream>>>(out);
  FLASHBENCH_CUDA(cudaGetLastError());
}
double ffma_flops(int multiprocessors) {
  return 2 * operations(multiprocessors);
}

void exp2(int multiprocessors, float* out, cudaStream_t stream) {
  chain_kernel<Exp2><<<multiprocessors * kBlocksPerMultiprocessor, kThreads, 0, stream>>>(out);
  FLASHBENCH_CUDA(cudaGetLastError());
}
double exp2_values(int multiprocessors) {
  return operations(multiprocessors);
}

void cvt_e4m3(int multiprocessors, float* out, cudaStream_t stream) {
  chain_kernel<CvtE4m3><<<multiprocessors * kBlocksPerMultiprocessor, kThreads, 0, stream>>>(out);
  FLASHBENCH_CUDA(cudaGetLastError());
}
double cvt_e4m3_values(int multiprocessors) {
  return CvtE4m3::kValues * operations(multiprocessors);
}

}  // namespace flashbench::cuda_rates
