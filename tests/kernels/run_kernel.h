// Runs our own CPU kernels in poisoned memory.
#pragma once

#include "kernels/cpu/targets.h"  // before Highway

#include <hwy/aligned_allocator.h>
#include <hwy/targets.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "tests/kernels/attention_check.h"

namespace flashbench::kernels {

inline std::vector<const AttentionKernel*> cpu_kernels(Pass pass) {
  std::vector<const AttentionKernel*> found;
  for (const AttentionKernel* kernel : all_kernels()) {
    if (kernel->device == DeviceKind::cpu && kernel->pass == pass) found.push_back(kernel);
  }
  return found;
}

inline DeviceInfo host_with_threads(int threads) {
  DeviceInfo host;
  host.kind = DeviceKind::cpu;
  host.threads = threads;
  return host;
}

// Launches `kernel` on a poisoned workspace of exactly the size that it requests.
template <typename Inputs>  // RandomInputs, PagedInputs
void run_kernel(const AttentionKernel& kernel, const Inputs& inputs, CheckedOutputs& outputs,
                ThreadPool& pool) {
  const Problem& p = inputs.problem();
  const DeviceInfo host = host_with_threads(pool.threads());
  const Launch at{p, host};
  const size_t bytes = kernel.workspace_bytes(at);
  const auto workspace = hwy::AllocateAligned<unsigned char>(bytes);
  std::memset(workspace.get(), 0xff, bytes);
  kernel.launch(at, inputs.view(), outputs.view(), workspace.get(), {.threads = &pool});
}

// Calls body(name) with the dispatch fixed to each SIMD target that is compiled and supported by
// this machine, then restores the best target.
template <typename Body>
void for_every_target(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    body(std::string(hwy::TargetName(target)));
    hwy::SetSupportedTargetsForTest(0);
  }
}

}  // namespace flashbench::kernels
