#include "device/cuda_bytes.h"

#include <algorithm>

#include "device/cuda_call.h"
#include "inputs/split_mix.cuh"

namespace flashbench::cuda_bytes {

namespace {

constexpr int kThreads = 256;

int blocks_for(int64_t items) {
  constexpr int64_t kMost = 132 * 8;  // enough to fill any GPU; threads stride over the rest
  return static_cast<int>(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, kMost));
}

__device__ int64_t first_item() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ int64_t item_stride() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// Returns the sum over the thread block in thread 0.
__device__ unsigned long long block_sum(unsigned long long value) {
  __shared__ unsigned long long of_warp[kThreads / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_down_sync(~0u, value, lanes);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / 32; ++warp) value += of_warp[warp];
  }
  return value;
}

__global__ void __launch_bounds__(kThreads)
    hash_kernel(const unsigned long long* words, int64_t count, const unsigned char* rest,
                int rest_bytes, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (int64_t i = first_item(); i < count; i += item_stride()) {
    mine += cuda_split_mix(words[i] ^ cuda_split_mix(static_cast<uint64_t>(i)));
  }
  if (first_item() < rest_bytes) {
    mine +=
        cuda_split_mix(rest[first_item()] ^ cuda_split_mix(~static_cast<uint64_t>(first_item())));
  }
  const unsigned long long total = block_sum(mine);
  if (threadIdx.x == 0) atomicAdd(sum, total);
}

template <typename Element>
__global__ void __launch_bounds__(kThreads)
    count_kernel(const Element* data, int64_t elements, unsigned long long* count) {
  unsigned long long mine = 0;
  for (int64_t i = first_item(); i < elements; i += item_stride()) {
    mine += data[i] == static_cast<Element>(~Element{0}) ? 1 : 0;
  }
  const unsigned long long total = block_sum(mine);
  if (threadIdx.x == 0 && total > 0) atomicAdd(count, total);
}

template <typename Element>
__global__ void __launch_bounds__(kThreads) flip_kernel(Element* data, int64_t elements) {
  constexpr auto kSign = static_cast<Element>(Element{1} << (8 * sizeof(Element) - 1));
  for (int64_t i = first_item(); i < elements; i += item_stride()) data[i] ^= kSign;
}

__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* data, int64_t count, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (int64_t i = first_item(); i < count; i += item_stride()) {
    const uint4 v = data[i];
    mine += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (mine == 0x0123456789abcdefull) atomicAdd(sum, 1);  // keeps the reads alive
}

// `head` bytes lie before the first whole word.
__global__ void __launch_bounds__(kThreads)
    fill_kernel(unsigned char* data, int64_t bytes, int64_t head, unsigned char value) {
  const unsigned word = value * 0x01010101u;
  const int64_t words = (bytes - head) / static_cast<int64_t>(sizeof(uint4));
  auto* const aligned = reinterpret_cast<uint4*>(data + head);
  for (int64_t i = first_item(); i < words; i += item_stride()) {
    aligned[i] = make_uint4(word, word, word, word);
  }
  const int64_t tail = head + words * static_cast<int64_t>(sizeof(uint4));
  if (first_item() < head) data[first_item()] = value;
  if (tail + first_item() < bytes) data[tail + first_item()] = value;
}

__global__ void hold_kernel(const volatile int* go, volatile int* gave_up,
                            unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  while (*go == 0) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - start > nanoseconds) {
      *gave_up = 1;
      return;
    }
  }
}

}  // namespace

void hash(const void* data, size_t bytes, unsigned long long* sum, cudaStream_t stream) {
  const auto words = static_cast<int64_t>(bytes / 8);
  hash_kernel<<<blocks_for(words), kThreads, 0, stream>>>(
      static_cast<const unsigned long long*>(data), words,
      static_cast<const unsigned char*>(data) + words * 8, static_cast<int>(bytes % 8), sum);
  FLASHBENCH_CUDA(cudaGetLastError());
}

void count_all_ones(const void* data, int64_t elements, size_t element_bytes,
                    unsigned long long* count, cudaStream_t stream) {
  if (element_bytes == 1) {
    count_kernel<<<blocks_for(elements), kThreads, 0, stream>>>(
        static_cast<const unsigned char*>(data), elements, count);
  } else if (element_bytes == 2) {
    count_kernel<<<blocks_for(elements), kThreads, 0, stream>>>(
        static_cast<const unsigned short*>(data), elements, count);
  } else {
    count_kernel<<<blocks_for(elements), kThreads, 0, stream>>>(
        static_cast<const unsigned int*>(data), elements, count);
  }
  FLASHBENCH_CUDA(cudaGetLastError());
}

void flip_signs(void* data, int64_t elements, size_t element_bytes, cudaStream_t stream) {
  if (element_bytes == 1) {
    flip_kernel<<<blocks_for(elements), kThreads, 0, stream>>>(static_cast<unsigned char*>(data),
                                                               elements);
  } else if (element_bytes == 2) {
    flip_kernel<<<blocks_for(elements), kThreads, 0, stream>>>(static_cast<unsigned short*>(data),
                                                               elements);
  } else {
    flip_kernel<<<blocks_for(elements), kThreads, 0, stream>>>(static_cast<unsigned int*>(data),
                                                               elements);
  }
  FLASHBENCH_CUDA(cudaGetLastError());
}

void read(const void* data, size_t bytes, unsigned long long* sum, cudaStream_t stream) {
  const auto count = static_cast<int64_t>(bytes / sizeof(uint4));
  read_kernel<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<const uint4*>(data), count,
                                                          sum);
  FLASHBENCH_CUDA(cudaGetLastError());
}

void fill(void* data, size_t bytes, unsigned char value, cudaStream_t stream) {
  constexpr size_t kWord = sizeof(uint4);
  const size_t head = std::min(bytes, (kWord - reinterpret_cast<uintptr_t>(data) % kWord) % kWord);
  fill_kernel<<<blocks_for(static_cast<int64_t>(bytes / kWord)), kThreads, 0, stream>>>(
      static_cast<unsigned char*>(data), static_cast<int64_t>(bytes), static_cast<int64_t>(head),
      value);
  FLASHBENCH_CUDA(cudaGetLastError());
}

void hold(const volatile int* go, volatile int* gave_up, double seconds, cudaStream_t stream) {
  hold_kernel<<<1, 1, 0, stream>>>(go, gave_up, static_cast<unsigned long long>(seconds * 1e9));
  FLASHBENCH_CUDA(cudaGetLastError());
}

}  // namespace flashbench::cuda_bytes
