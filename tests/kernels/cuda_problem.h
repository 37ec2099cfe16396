// Runs one of our own kernels on a GPU, launched as the provider launches it.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cu_seqlens.h"
#include "device/cuda_call.h"
#include "device/device_tensors.h"
#include "inputs/inputs.h"
#include "kernels/attention.h"
#include "verify/oracle.h"

namespace flashbench::kernels {

// Two batches, three query heads per K/V head.
inline Problem grouped_problem(Dtype dtype, Mask mask, int64_t kv_heads, int64_t q_len,
                               int64_t kv_len, int64_t head_dim) {
  Problem p;
  p.dtype = dtype;
  p.mask = mask;
  p.batch = 2;
  p.q_heads = 3 * kv_heads;
  p.kv_heads = kv_heads;
  p.q_len = q_len;
  p.kv_len = kv_len;
  p.head_dim = head_dim;
  return p;
}

// The same for requests of these lengths.
inline Problem problem_of_requests(Dtype dtype, Mask mask, Layout layout, int64_t kv_heads,
                                   std::vector<RequestLengths> requests, int64_t head_dim) {
  Problem p = grouped_problem(dtype, mask, kv_heads, 1, 1, head_dim);
  p.layout = layout;
  p.set_lengths(std::make_shared<const Lengths>(std::move(requests)));
  return p;
}

// The same with K and V in pages of so many rows.
inline Problem in_pages(Problem p, int64_t page_size) {
  p.page_size = page_size;
  return p;
}

// The name of a test of one problem.
inline std::string test_name(const Problem& problem) {
  std::string name = problem.id();
  if (problem.page_size) name += "_pages_of_" + std::to_string(*problem.page_size);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

// A problem on a GPU for a kernel: normal inputs, and outputs and workspace that start poisoned.
class CudaProblem {
 public:
  CudaProblem(Device& device, const AttentionKernel& kernel, const Problem& problem)
      : CudaProblem(device, kernel, problem, kernel.choose(problem, device.info())) {}
  CudaProblem(Device& device, const AttentionKernel& kernel, const Problem& problem,
              const BlockSizes& blocks)
      : CudaProblem(device, kernel, problem, blocks, device.info()) {}
  // The kernel is told `info` of the device, e.g. of another number of multiprocessors.
  CudaProblem(Device& device, const AttentionKernel& kernel, const Problem& problem,
              const BlockSizes& blocks, const DeviceInfo& info)
      : kernel_(kernel),
        problem_(problem),
        info_(info),
        stream_(device.stream()),
        host_(problem, InputSpec{}, *stream_.threads),
        inputs_(device, problem, Placement::contiguous, host_.inputs()),
        outputs_(device, problem, Placement::contiguous),
        blocks_(blocks),
        cu_seqlens_(device, problem),
        workspace_(device.allocate(kernel.workspace_bytes(at()), MemoryUse::workspace)) {}

  void launch() const {
    kernel_.launch(at(), inputs_.view(), outputs_.view(), workspace_.data(), stream_);
  }
  // The same in the workspace of another problem, for which the same host code would launch.
  void launch_in(const CudaProblem& other) const {
    kernel_.launch(at(), inputs_.view(), outputs_.view(), other.workspace_.data(), stream_);
  }
  // The same with O in fp32, to outputs of that dtype.
  void launch_to_fp32_o(const DeviceOutputs& outputs) const {
    Launch launch = at();
    launch.fp32_outputs.of_queries = true;
    kernel_.launch(launch, inputs_.view(), outputs.view(), workspace_.data(), stream_);
  }

  // Gives a backward pass the O and the logsumexp of its forward pass.
  void set_forward(const Oracle& oracle) {
    oracle.exact_forward(host_.mutable_o(), host_.mutable_logsumexp());
    inputs_.refill(host_.inputs());
  }

  // Takes the lengths and inputs of another ragged problem, and has poison behind them. The other
  // has as many requests, and no more of anything else.
  void take_inputs(const CudaProblem& other) {
    inputs_.poison();
    const Problem& p = other.problem_;
    const Inputs to = inputs_.view(), from = other.inputs_.view();
    copy(to.q.data, from.q.data, p.query_elements() * element_size(p.dtype));
    copy(to.k.data, from.k.data, p.key_elements() * element_size(p.key_dtype()));
    copy(to.v.data, from.v.data, p.value_elements() * element_size(p.key_dtype()));
    if (p.is_paged()) {
      copy_rows(to.k.pages.table, to.k.pages.stride, from.k.pages.table, from.k.pages.stride,
                p.batch);
    }
    if (p.pass == Pass::backward) {
      copy(to.o.data, from.o.data, p.output_elements() * element_size(p.dtype));
      copy(to.d_o.data, from.d_o.data, p.output_elements() * element_size(p.dtype));
      copy_rows(to.logsumexp, problem_.q_tokens(), from.logsumexp, p.q_tokens(), p.q_heads);
    }
    const auto starts = static_cast<int64_t>(sizeof(int32_t)) * (p.batch + 1);
    copy(cu_seqlens_.queries(), other.cu_seqlens_.queries(), starts);
    copy(cu_seqlens_.keys(), other.cu_seqlens_.keys(), starts);
  }
  // Copies the outputs of a launch with the inputs that were taken to those of the other.
  void copy_outputs(const CudaProblem& other) const {
    const Problem& p = other.problem_;
    const Outputs to = other.outputs_.view(), from = outputs_.view();
    if (p.pass == Pass::forward) {
      copy(to.o.data, from.o.data, p.output_elements() * element_size(p.output_dtype()));
      copy_rows(to.logsumexp, p.q_tokens(), from.logsumexp, problem_.q_tokens(), p.q_heads);
      return;
    }
    copy(to.dq.data, from.dq.data, p.query_elements() * element_size(p.dtype));
    copy(to.dk.data, from.dk.data, p.key_elements() * element_size(p.dtype));
    copy(to.dv.data, from.dv.data, p.value_elements() * element_size(p.dtype));
  }
  // All elements of all inputs become NaNs.
  void poison_inputs() { inputs_.poison(); }
  bool workspace_is_poisoned() const {
    std::vector<unsigned char> bytes(kernel_.workspace_bytes(at()));
    FLASHBENCH_CUDA(
        cudaMemcpy(bytes.data(), workspace_.data(), bytes.size(), cudaMemcpyDeviceToHost));
    return std::ranges::all_of(bytes, [](unsigned char byte) { return byte == kPoisonByte; });
  }
  int64_t output_elements() const {
    const Problem& p = problem_;
    return p.pass == Pass::forward ? p.output_elements() + p.query_rows()
                                   : p.query_elements() + p.key_elements() + p.value_elements();
  }

  const Problem& problem() const { return problem_; }
  Inputs host_inputs() const { return host_.inputs(); }
  Inputs inputs() const { return inputs_.view(); }
  DeviceOutputs& outputs() { return outputs_; }

 private:
  Launch at() const {
    return {problem_, info_, blocks_, cu_seqlens_.queries(), cu_seqlens_.keys()};
  }

  // In the order of the launches. Inputs are const to kernels alone.
  void copy(const void* to, const void* from, int64_t bytes) const {
    FLASHBENCH_CUDA(cudaMemcpyAsync(const_cast<void*>(to), from, static_cast<size_t>(bytes),
                                    cudaMemcpyDeviceToDevice,
                                    static_cast<cudaStream_t>(stream_.cuda)));
  }
  // Of 4-byte elements, as many as the shorter rows have.
  void copy_rows(const void* to, int64_t to_row, const void* from, int64_t from_row,
                 int64_t rows) const {
    const auto bytes = [](int64_t elements) { return static_cast<size_t>(elements) * 4; };
    FLASHBENCH_CUDA(cudaMemcpy2DAsync(const_cast<void*>(to), bytes(to_row), from, bytes(from_row),
                                      bytes(std::min(to_row, from_row)), static_cast<size_t>(rows),
                                      cudaMemcpyDeviceToDevice,
                                      static_cast<cudaStream_t>(stream_.cuda)));
  }

  const AttentionKernel& kernel_;
  Problem problem_;
  DeviceInfo info_;
  Stream stream_;
  HostTensors host_;
  DeviceInputs inputs_;
  DeviceOutputs outputs_;
  BlockSizes blocks_;
  CuSeqlens cu_seqlens_;
  Buffer workspace_;
};

}  // namespace flashbench::kernels
