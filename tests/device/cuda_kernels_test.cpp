// The names and facts of the kernels of a launch; the names need no GPU.
#include "device/cuda_kernels.h"

#include <gtest/gtest.h>

#include "device/cuda.h"
#include "device/cuda_bytes.h"

namespace flashbench {
namespace {

TEST(KernelName, IsWithoutParametersAndReturnType) {
  EXPECT_EQ(kernel_name("_ZN1a1bILi64EEEvPfi"), "a::b<64>");
  EXPECT_EQ(kernel_name("_ZN12_GLOBAL__N_17forwardI6__halfEEvPKT_"),
            "(anonymous namespace)::forward<__half>");
  EXPECT_EQ(kernel_name("sm90_xmma_gemm_bf16"), "sm90_xmma_gemm_bf16");
}

TEST(CudaKernels, AreThoseOfALaunchThatDoesNotRun) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const auto device = make_cuda_device(0);
  const Buffer buffer = device->allocate(1 << 20, MemoryUse::workspace);
  const auto stream = static_cast<cudaStream_t>(device->stream().cuda);
  const auto flip = [&] {
    cuda_bytes::flip_signs(buffer.data(), 1 << 18, 4, stream);
    cuda_bytes::flip_signs(buffer.data(), 1 << 18, 2, stream);
  };
  flip();
  const uint64_t before = device->hash(buffer.data(), buffer.bytes(), 0);
  const std::vector<KernelFacts> kernels = device->kernels_of(flip);
  EXPECT_EQ(device->hash(buffer.data(), buffer.bytes(), 0), before);
  ASSERT_EQ(kernels.size(), 2u);
  for (const KernelFacts& kernel : kernels) {
    EXPECT_NE(kernel.name.find("flip_kernel"), std::string::npos) << kernel.name;
    EXPECT_GT(kernel.blocks, 0);
    EXPECT_GT(kernel.threads, 0);
    EXPECT_GT(kernel.registers, 0);
    EXPECT_EQ(kernel.local_bytes, 0);
    EXPECT_GE(kernel.blocks_per_multiprocessor * kernel.threads, 1024) << "a simple kernel fits";
  }
}

}  // namespace
}  // namespace flashbench
