// Kernels of our own on a GPU, launched as the provider launches them, and watched: one that hangs
// fails the test.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include "device/cuda_call.h"
#include "device/device_tensors.h"
#include "device/inputs.h"
#include "kernels/attention.h"

namespace flashbench::kernels {

// Waits until what the streams have been given so far is done. After `seconds` without that it ends
// the process: a kernel that hangs cannot be stopped, and whatever else is asked of the GPU, even
// to free memory, would wait for it.
inline void finish_or_exit(std::initializer_list<Stream> streams, double seconds,
                           const std::string& what) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  for (const Stream& stream : streams) {
    cudaError_t status;
    while ((status = cudaStreamQuery(static_cast<cudaStream_t>(stream.cuda))) ==
           cudaErrorNotReady) {
      if (Clock::now() < deadline) continue;
      std::printf("%s: not done after %g seconds\n", what.c_str(), seconds);
      std::fflush(stdout);
      std::_Exit(1);
    }
    FLASHBENCH_CUDA(status);
  }
}

// A problem on a GPU for a kernel: normal inputs, and outputs and workspace that start poisoned.
class CudaProblem {
 public:
  CudaProblem(Device& device, const AttentionKernel& kernel, const Problem& problem)
      : CudaProblem(device, kernel, problem, kernel.choose(problem, device.info())) {}
  CudaProblem(Device& device, const AttentionKernel& kernel, const Problem& problem,
              const BlockSizes& blocks)
      : kernel_(kernel),
        problem_(problem),
        info_(device.info()),
        stream_(device.stream()),
        host_(problem, InputSpec{}, *stream_.threads),
        inputs_(device, problem, Placement::contiguous, host_.inputs()),
        outputs_(device, problem, Placement::contiguous),
        blocks_(blocks),
        workspace_(device.allocate(kernel.workspace_bytes(at()), MemoryUse::workspace)) {}

  void launch() const {
    kernel_.launch(at(), inputs_.view(), outputs_.view(), workspace_.data(), stream_);
  }
  Inputs host_inputs() const { return host_.inputs(); }
  DeviceOutputs& outputs() { return outputs_; }

 private:
  Launch at() const { return {problem_, info_, blocks_}; }

  const AttentionKernel& kernel_;
  Problem problem_;
  DeviceInfo info_;
  Stream stream_;
  HostTensors host_;
  DeviceInputs inputs_;
  DeviceOutputs outputs_;
  BlockSizes blocks_;
  Buffer workspace_;
};

}  // namespace flashbench::kernels
