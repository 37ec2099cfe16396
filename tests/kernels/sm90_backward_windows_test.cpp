// The backward pass for Hopper with sliding windows, against the fp64 oracle: in plain batches and
// by request, with lengths that no block divides, deterministic or not.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "device/cu_seqlens.h"
#include "device/cuda.h"
#include "device/device_tensors.h"
#include "inputs/inputs.h"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/on_gpu.h"
#include "verify/oracle.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Backward, kSm90BackwardDeterministic;

namespace {

struct Window {
  std::optional<int64_t> left, right;
};
// Narrower than a block, wider, and of one key; 127 and 129 end beside a block's end.
const std::vector<Window> kWindows{{0, std::nullopt}, {70, 9}, {129, 0}, {std::nullopt, 127}};

void expect_right(Device& device, const Problem& p) {
  SCOPED_TRACE(p.id());
  HostTensors host(p, InputSpec{}, *device.stream().threads);
  const Oracle oracle(p, host.inputs(), Dtype::fp32, {}, device);
  oracle.exact_forward(host.mutable_o(), host.mutable_logsumexp());
  const DeviceInputs inputs(device, p, Placement::contiguous, host.inputs());
  DeviceOutputs outputs(device, p, Placement::contiguous);
  const CuSeqlens cu_seqlens(device, p);
  for (const AttentionKernel* kernel : {&kSm90Backward, &kSm90BackwardDeterministic}) {
    SCOPED_TRACE(kernel->name);
    const Launch at{p, device.info(), kernel->choose(p, device.info()), cu_seqlens.queries(),
                    cu_seqlens.keys()};
    const Buffer workspace = device.allocate(kernel->workspace_bytes(at), MemoryUse::workspace);
    outputs.poison();
    kernel->launch(at, inputs.view(), outputs.view(), workspace.data(), device.stream());
    finish_or_exit({device.stream()}, 10, p.id());
    EXPECT_EQ(outputs.damage(), "");
    HostOutputs found = outputs.to_host();
    const Verdict verdict = oracle.judge(found.view());
    EXPECT_TRUE(verdict.passed()) << verdict.reason;
  }
}

class CudaSm90BackwardWindows : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
    device_ = make_cuda_device(0);
    Problem p = grouped_problem(Dtype::bf16, Mask::none, 2, 1, 1, GetParam());
    p.pass = Pass::backward;
    if (const auto why = kSm90Backward.why_unsupported(p, device_->info())) GTEST_SKIP() << *why;
  }

  // With each mask and window, and the dtypes in turn.
  template <typename WithDtypeAndMask>
  void expect_right_with_windows(const WithDtypeAndMask& problem_with) {
    int turn = 0;
    for (const Mask mask : kMasks) {
      for (const Window& window : kWindows) {
        Problem p = problem_with(turn++ % 2 == 0 ? Dtype::bf16 : Dtype::fp16, mask);
        p.pass = Pass::backward;
        p.window_left = window.left;
        p.window_right = window.right;
        expect_right(*device_, p);
      }
    }
  }

  std::unique_ptr<Device> device_;
};

TEST_P(CudaSm90BackwardWindows, AreRight) {
  const std::vector<RequestLengths> lengths{{1, 1}, {77, 130}, {333, 777}, {700, 301}};
  for (const RequestLengths& one : lengths) {
    expect_right_with_windows([&](Dtype dtype, Mask mask) {
      return grouped_problem(dtype, mask, 2, one.q_len, one.kv_len, GetParam());
    });
  }
}

TEST_P(CudaSm90BackwardWindows, AreRightForRequests) {
  const std::vector<RequestLengths> requests{{0, 5},    {1, 1},     {77, 77}, {64, 500}, {20, 0},
                                             {301, 80}, {333, 777}, {0, 0},   {193, 193}};
  for (const Layout layout : {Layout::ragged, Layout::bhsd}) {
    expect_right_with_windows([&](Dtype dtype, Mask mask) {
      return problem_of_requests(dtype, mask, layout, 2, requests, GetParam());
    });
  }
}

// Blocks of keys have as many parts as a group has heads, or fewer.
TEST_P(CudaSm90BackwardWindows, AreRightInManyHeadsOfAGroup) {
  expect_right_with_windows([&](Dtype dtype, Mask mask) {
    Problem p = grouped_problem(dtype, mask, 1, 400, 500, GetParam());
    p.q_heads = 8;
    return p;
  });
}

INSTANTIATE_TEST_SUITE_P(HeadDim, CudaSm90BackwardWindows, testing::Values(64, 88, 128, 192, 256),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace flashbench::kernels
