// Every compiled block size of our GPU forward kernels, whether the kernel chooses it or not,
// against the fp64 oracle.
#include <gtest/gtest.h>

#include "device/cuda.h"
#include "kernels/common/blocks.h"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/on_gpu.h"
#include "verify/oracle.h"
#include "verify/storage.h"

namespace flashbench::kernels {
namespace {

struct Lengths {
  int64_t q, kv;
};
// No block size divides the long lengths; the other lengths end within the first block of queries
// or of keys.
constexpr Lengths kLengths[] = {{1, 1}, {77, 77}, {64, 300}, {197, 80}, {500, 777}};
constexpr Mask kMasks[] = {Mask::none, Mask::causal_top_left, Mask::causal_bottom_right};

class CudaCandidates : public testing::TestWithParam<int64_t> {};

void expect_right(Device& device, const AttentionKernel& kernel, const Problem& p) {
  if (kernel.why_unsupported(p, device.info())) return;
  for (const BlockSizes& blocks : kernel.candidates(p, device.info())) {
    SCOPED_TRACE(p.id() + " " + kernel.variant({p, device.info(), blocks}));
    CudaProblem one(device, kernel, p, blocks);
    one.outputs().poison();
    one.launch();
    finish_or_exit({device.stream()}, 10, p.id());
    EXPECT_EQ(one.outputs().damage(), "");
    const Storage storage(Dtype::fp32, Dtype::fp32, kernel.accumulator);
    const Oracle oracle(p, one.host_inputs(), storage, {}, device);
    HostOutputs host = one.outputs().to_host();
    const Verdict verdict = oracle.judge(host.view());
    EXPECT_TRUE(verdict.passed()) << verdict.reason;
  }
}

TEST_P(CudaCandidates, AreRight) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  for (const AttentionKernel* kernel : cuda_kernels()) {
    if (kernel->pass != Pass::forward || kernel->candidates == nullptr) continue;
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      for (const Mask mask : kMasks) {
        for (const auto [q_len, kv_len] : kLengths) {
          expect_right(*device, *kernel,
                       grouped_problem(dtype, mask, 2, q_len, kv_len, GetParam()));
        }
      }
    }
  }
}

TEST_P(CudaCandidates, OfE4m3AreRight) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  for (const AttentionKernel* kernel : cuda_kernels()) {
    if (!kernel->knows_e4m3) continue;
    for (const Mask mask : kMasks) {
      for (const auto [q_len, kv_len] : kLengths) {
        Problem p = grouped_problem(Dtype::e4m3, mask, 2, q_len, kv_len, GetParam());
        expect_right(*device, *kernel, p);
        p.descale = Descale::per_tensor;
        p.layout = Layout::bhsd;
        expect_right(*device, *kernel, p);
      }
    }
  }
}

TEST_P(CudaCandidates, OfE4m3AreRightWithRecipes) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  for (const AttentionKernel* kernel : cuda_kernels()) {
    if (!kernel->knows_quantize) continue;
    for (const Quantize quantize :
         {Quantize::e4m3_tensor, Quantize::e4m3_head, Quantize::e4m3_tensor_hadamard}) {
      for (const auto [q_len, kv_len] : kLengths) {
        Problem p =
            grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 2, q_len, kv_len, GetParam());
        p.quantize = quantize;
        if (!p.invalid()) expect_right(*device, *kernel, p);
      }
    }
  }
}

// Requests of other lengths beside each other, packed and padded, and windows.
TEST_P(CudaCandidates, AreRightForRequests) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const std::vector<RequestLengths> requests{{0, 5},    {1, 1},     {77, 77}, {64, 300}, {20, 0},
                                             {197, 80}, {500, 777}, {0, 0},   {193, 193}};
  for (const AttentionKernel* kernel : cuda_kernels()) {
    if (kernel->pass != Pass::forward || kernel->candidates == nullptr) continue;
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      for (const Mask mask : kMasks) {
        for (const Layout layout : kLayouts) {
          Problem p = problem_of_requests(dtype, mask, layout, 2, requests, GetParam());
          if (kernel->knows_lengths) expect_right(*device, *kernel, p);
          p.window_left = 70;
          if (mask == Mask::none) p.window_right = 9;
          if (kernel->knows_lengths && kernel->knows_windows) expect_right(*device, *kernel, p);
        }
        Problem p = grouped_problem(dtype, mask, 2, 500, 777, GetParam());
        p.window_left = 100;
        if (kernel->knows_windows) expect_right(*device, *kernel, p);
      }
    }
  }
}

// Pages that are smaller than a block of keys, larger, and neither a divisor nor a multiple of it.
TEST_P(CudaCandidates, AreRightInPages) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const std::vector<RequestLengths> requests{{0, 5},    {1, 1},     {77, 77}, {64, 300}, {20, 0},
                                             {197, 80}, {500, 777}, {0, 0},   {193, 193}};
  for (const AttentionKernel* kernel : cuda_kernels()) {
    if (kernel->candidates == nullptr || !kernel->knows_pages) continue;
    int turn = 0;
    for (const int64_t page_size : {16, 48, 64, 80, 256}) {
      for (const Mask mask : kMasks) {
        for (const KvLayout kv_layout : kKvLayouts) {
          const Dtype dtype = turn % 2 == 0 ? Dtype::bf16 : Dtype::fp16;
          const Layout layout = kLayouts[static_cast<size_t>(turn) % kLayouts.size()];
          Problem of_requests = problem_of_requests(dtype, mask, layout, 2, requests, GetParam());
          Problem equal = grouped_problem(dtype, mask, 2, 197, 777, GetParam());
          for (Problem* p : {&of_requests, &equal}) {
            p->page_size = page_size;
            p->kv_layout = kv_layout;
            p->page_order = kPageOrders[static_cast<size_t>(turn++) % kPageOrders.size()];
            expect_right(*device, *kernel, *p);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDim, CudaCandidates, testing::Values(64, 80, 96, 128, 192, 256),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace flashbench::kernels
