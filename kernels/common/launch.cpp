#include "kernels/common/launch.h"

#include "device/cuda_call.h"

namespace flashbench::kernels::detail {
namespace {

// Raises the kernel's limit of dynamic shared memory, which is 48 KB by default.
void allow(const void* function, int shared_bytes) {
  FLASHBENCH_CUDA(
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
}

}  // namespace

void launch_kernel(const void* function, int64_t thread_blocks, int threads, int shared_bytes,
                   void** arguments, Stream stream, Start start) {
  allow(function, shared_bytes);
  cudaLaunchAttribute attribute{};
  if (start == Start::early) {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  } else if (start == Start::together) {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(thread_blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream.cuda);
  config.attrs = &attribute;
  config.numAttrs = start == Start::after_end ? 0 : 1;
  // A failure also sets the last error; cudaGetLastError below returns and clears it.
  (void)cudaLaunchKernelExC(&config, function, arguments);
  FLASHBENCH_CUDA(cudaGetLastError());
}

KernelFacts kernel_facts(std::string_view name, const void* function, int threads,
                         int shared_bytes) {
  allow(function, shared_bytes);
  cudaFuncAttributes attributes;
  FLASHBENCH_CUDA(cudaFuncGetAttributes(&attributes, function));
  KernelFacts facts{.name = std::string(name), .threads = threads};
  facts.registers = attributes.numRegs;
  facts.static_shared_bytes = static_cast<int>(attributes.sharedSizeBytes);
  facts.dynamic_shared_bytes = shared_bytes;
  facts.local_bytes = static_cast<int>(attributes.localSizeBytes);
  FLASHBENCH_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &facts.blocks_per_multiprocessor, function, threads, static_cast<size_t>(shared_bytes)));
  return facts;
}

}  // namespace flashbench::kernels::detail
