#include "kernels/naive/addresses.h"

#include <cstddef>

#include "device/cuda_call.h"

namespace flashbench::kernels {

namespace {

constexpr int kThreads = 128;

struct ThreeAddresses {
  HeadAddresses of[3];
};

__global__ __launch_bounds__(kThreads) void addresses_kernel(ThreeAddresses addresses,
                                                             int64_t batch, int64_t heads,
                                                             const void** table) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= 3 * batch * heads) return;
  const HeadAddresses& matrix = addresses.of[index / (batch * heads)];
  const int64_t b = index / heads % batch, h = index % heads;
  table[index] = static_cast<const std::byte*>(matrix.data) + b * matrix.batch_step +
                 h / matrix.sharers * matrix.head_step;
}

}  // namespace

void write_head_addresses(const HeadAddresses& a, const HeadAddresses& b, const HeadAddresses& c,
                          int64_t batch, int64_t heads, const void** table, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((3 * batch * heads + kThreads - 1) / kThreads);
  addresses_kernel<<<blocks, kThreads, 0, stream>>>({{a, b, c}}, batch, heads, table);
  FLASHBENCH_CUDA(cudaGetLastError());
}

}  // namespace flashbench::kernels
