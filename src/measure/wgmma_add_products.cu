// Steps of products by wgmma, each by one thread block.
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/e4m3.h"
#include "device/cuda_call.h"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/wgmma.h"
#include "measure/accumulator_bits.h"

namespace flashbench {

namespace {

constexpr int kSize = ProductStep::kSize;
constexpr int kElements = kSize * kSize;
constexpr int kWarpgroup = 128;
constexpr int kRowBytes = 64;  // of a row of shared memory, half of which is used

// `a` has four elements a word, `b` the columns of B as rows. wgmma multiplies 64 rows, of which
// those behind the last are 0.
__global__ void __launch_bounds__(kWarpgroup)
    add_products_kernel(const uint32_t* a, const uint8_t* b, float* sums) {
  __shared__ alignas(8 * kRowBytes) uint8_t columns[kSize * kRowBytes];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kElements; i += kWarpgroup) {
    const int column = i / kSize, product = i % kSize;
    const int chunk = product / 16 ^ column / 2 % 4;
    columns[column * kRowBytes + chunk * 16 + product % 16] = b[i];
  }
  ptx::fence_proxy_async();
  __syncthreads();

  const int row = thread / 32 * 16 + thread % 32 / 4, lane = thread % 4;
  const bool has_rows = row < kSize;
  uint32_t operand[4];
  for (int i = 0; i < 4; ++i) {
    operand[i] = has_rows ? a[((row + i % 2 * 8) * kSize + i / 2 * 16) / 4 + lane] : 0;
  }
  const auto index = [&](int i) {
    return (row + i / 2 % 2 * 8) * kSize + i / 4 * 8 + lane * 2 + i % 2;
  };
  float d[kSize / 2];
  for (int i = 0; i < kSize / 2; ++i) d[i] = has_rows ? sums[index(i)] : 0;
  ptx::keep_here(d);
  ptx::wgmma_fence();
  const ptx::SwizzledMatrix<kRowBytes> b_rows(ptx::shared_address(columns), 0);
  ptx::Wgmma<kSize>::multiply_registers_e4m3(d, operand, b_rows, true);
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
  ptx::keep_here(d);
  if (!has_rows) return;
  for (int i = 0; i < kSize / 2; ++i) sums[index(i)] = d[i];
}

struct StepBuffers {
  Buffer a, b, sums;
};

}  // namespace

AddProducts wgmma_add_products(Device& device) {
  const auto buffers = std::make_shared<StepBuffers>(
      StepBuffers{device.allocate(kElements, MemoryUse::workspace),
                  device.allocate(kElements, MemoryUse::workspace),
                  device.allocate(sizeof(ProductStep::Matrix), MemoryUse::workspace)});
  return [buffers, &device](ProductStep& step) {
    std::vector<uint8_t> rows(kElements), columns(kElements);
    for (size_t i = 0; i < kElements; ++i) {
      rows[i] = float_to_e4m3(step.a[i]);
      columns[i % kSize * kSize + i / kSize] = float_to_e4m3(step.b[i]);
    }
    device.copy_to_device(buffers->a.data(), rows.data(), kElements);
    device.copy_to_device(buffers->b.data(), columns.data(), kElements);
    device.copy_to_device(buffers->sums.data(), step.sums.data(), sizeof(step.sums));
    add_products_kernel<<<1, kWarpgroup, 0, static_cast<cudaStream_t>(device.stream().cuda)>>>(
        buffers->a.as<uint32_t>(), buffers->b.as<uint8_t>(), buffers->sums.as<float>());
    FLASHBENCH_CUDA(cudaGetLastError());
    device.synchronize();
    device.copy_to_host(step.sums.data(), buffers->sums.data(), sizeof(step.sums));
  };
}

}  // namespace flashbench
