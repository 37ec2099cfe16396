// Kernels that do only what is measured.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace flashbench::cuda_rates {

// Fill with N(0, 1), computed in fp32, from a counter-based generator: the same for the same seed.
void fill_normal_fp32(float* data, int64_t count, uint64_t seed, cudaStream_t);
void fill_normal_fp16(void* data, int64_t count, uint64_t seed, cudaStream_t);
void fill_normal_bf16(void* data, int64_t count, uint64_t seed, cudaStream_t);

// Copies bytes [0, bytes), a multiple of 16.
void copy(void* to, const void* from, size_t bytes, cudaStream_t);

// Run chains of fused multiply-adds, of exponentials, and of roundings of fp32 to e4m3, on every
// multiprocessor. `out` has room for one float. The counts are totals over all threads. Rounding
// needs a GPU from kLeastForE4m3 on.
void ffma(int multiprocessors, float* out, cudaStream_t);
double ffma_flops(int multiprocessors);
void exp2(int multiprocessors, float* out, cudaStream_t);
double exp2_values(int multiprocessors);
inline constexpr int kLeastForE4m3 = 89;  // compute capability
void cvt_e4m3(int multiprocessors, float* out, cudaStream_t);
double cvt_e4m3_values(int multiprocessors);

}  // namespace flashbench::cuda_rates
