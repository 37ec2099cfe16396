// The forward kernel for Hopper with its roles delayed at random (delayed_forward.cuh).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "device/cuda.h"
#include "kernels/common/launch.h"
#include "kernels/sm90/forward.cuh"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/delayed_forward.cuh"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/random_delay.cuh"
#include "verify/oracle.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Forward;

namespace sm90 {
namespace {

// A variant of the kernel with delays.
struct Delayed {
  BlockSizes blocks;
  CudaKernel<Arguments> kernel;
};
template <typename T, Config kConfig>
Delayed delayed() {
  using Kernel = Forward<T, kConfig, RandomDelay>;
  return {
      {.q = kConfig.block_q,
       .kv = kConfig.block_kv,
       .warps = Kernel::kThreads / 32,
       .stages = kConfig.stages,
       .overlaps = kConfig.overlaps},
      {"sm90_forward", forward_kernel<Kernel>, Kernel::kThreads, sizeof(typename Kernel::Shared)}};
}

struct Sample {
  Problem problem;
  Delayed kernel;
  int multiprocessors = 0;  // that the kernel is told of; 0: those that there are
};

std::vector<Sample> samples() {
  const Delayed d64 = delayed<__nv_bfloat16, configuration(64, 192, 128, 2)>();
  const Delayed d64_short = delayed<__nv_bfloat16, configuration(64, 64, 64, 2)>();
  const Delayed d64_few = delayed<__half, configuration(64, 128, 128, 2)>();
  const Delayed d80 = delayed<__half, configuration(80, 192, 64, 4)>();
  const Delayed d96_few = delayed<__nv_bfloat16, configuration(96, 128, 128, 2)>();
  const Delayed d128 = delayed<__half, configuration(128, 192, 64, 4)>();
  const Delayed d128_few = delayed<__half, configuration(128, 128, 128, 2)>();
  const Delayed d128_overlapped = delayed<__half, with_overlap(configuration(128, 128, 128, 2))>();
  const Delayed d128_short = delayed<__half, configuration(128, 64, 80, 2)>();
  const Delayed d256 = delayed<__nv_bfloat16, configuration(256, 128, 64, 2)>();
  const Delayed by_request_64 = delayed<__nv_bfloat16, configuration(64, 192, 128, 2, true)>();
  const Delayed by_request_64_short = delayed<__half, configuration(64, 64, 64, 2, true)>();
  const Delayed by_request_128 = delayed<__half, configuration(128, 192, 64, 4, true)>();
  const Delayed by_request_256 = delayed<__nv_bfloat16, configuration(256, 128, 64, 2, true)>();
  const std::vector<RequestLengths> requests{{0, 5},    {301, 300}, {64, 500}, {1, 1},
                                             {700, 80}, {20, 0},    {193, 900}};
  const auto windowed = [](Problem p, int64_t left) {
    p.window_left = left;
    return p;
  };
  constexpr auto kTop = Mask::causal_top_left, kBottom = Mask::causal_bottom_right;
  // Its last wave is in pieces.
  constexpr int kFew = 11;
  const Delayed d64_in_pieces =
      delayed<__nv_bfloat16, with_pieces(configuration(64, 192, 128, 2))>();
  const Delayed d64_few_in_pieces = delayed<__half, with_pieces(configuration(64, 128, 128, 2))>();
  const Delayed d80_in_pieces = delayed<__half, with_pieces(configuration(80, 192, 64, 4))>();
  const Delayed d128_in_pieces = delayed<__half, with_pieces(configuration(128, 192, 64, 4))>();
  const Delayed d128_few_in_pieces =
      delayed<__half, with_pieces(configuration(128, 128, 128, 2))>();
  const Delayed d128_overlapped_in_pieces =
      delayed<__half, with_pieces(with_overlap(configuration(128, 128, 128, 2)))>();
  const Delayed d256_in_pieces =
      delayed<__nv_bfloat16, with_pieces(configuration(256, 128, 64, 2))>();
  const auto in_pieces = [](Dtype dtype, int64_t q_len, int64_t kv_len, int64_t head_dim,
                            const Delayed& kernel) -> Sample {
    return {grouped_problem(dtype, Mask::none, 2, q_len, kv_len, head_dim), kernel, kFew};
  };
  return {
      in_pieces(Dtype::bf16, 500, 4201, 64, d64_in_pieces),
      in_pieces(Dtype::fp16, 250, 2101, 64, d64_few_in_pieces),
      in_pieces(Dtype::fp16, 300, 4301, 80, d80_in_pieces),
      in_pieces(Dtype::fp16, 500, 4333, 120, d128_in_pieces),
      in_pieces(Dtype::fp16, 190, 3071, 128, d128_in_pieces),
      in_pieces(Dtype::fp16, 250, 5000, 128, d128_few_in_pieces),
      in_pieces(Dtype::fp16, 250, 4099, 128, d128_overlapped_in_pieces),
      in_pieces(Dtype::bf16, 129, 4500, 256, d256_in_pieces),
      {grouped_problem(Dtype::bf16, Mask::none, 2, 500, 1201, 64), d64},
      {grouped_problem(Dtype::bf16, Mask::none, 2, 1, 1, 64), d64},
      {grouped_problem(Dtype::bf16, kBottom, 2, 1601, 1700, 64), d64},
      {grouped_problem(Dtype::bf16, kBottom, 2, 197, 300, 64), d64_short},
      {grouped_problem(Dtype::fp16, Mask::none, 2, 300, 901, 64), d64_few},
      {grouped_problem(Dtype::bf16, kBottom, 2, 700, 800, 96), d96_few},
      {grouped_problem(Dtype::fp16, kBottom, 2, 700, 800, 72), d80},
      {grouped_problem(Dtype::fp16, Mask::none, 2, 257, 500, 80), d80},
      {grouped_problem(Dtype::fp16, kTop, 2, 257, 400, 128), d128_short},
      {grouped_problem(Dtype::fp16, kBottom, 2, 1000, 1100, 128), d128_few},
      {grouped_problem(Dtype::fp16, Mask::none, 2, 300, 1601, 128), d128_overlapped},
      {grouped_problem(Dtype::fp16, kBottom, 2, 1000, 2100, 128), d128_overlapped},
      {grouped_problem(Dtype::fp16, kTop, 2, 700, 100, 128), d128_overlapped},
      {grouped_problem(Dtype::fp16, Mask::none, 2, 300, 777, 128), d128},
      {grouped_problem(Dtype::fp16, kTop, 2, 1000, 333, 120), d128},
      {grouped_problem(Dtype::fp16, kBottom, 2, 600, 450, 128), d128},
      {grouped_problem(Dtype::bf16, Mask::none, 2, 129, 500, 256), d256},
      {grouped_problem(Dtype::bf16, kBottom, 2, 700, 701, 256), d256},
      {problem_of_requests(Dtype::bf16, kBottom, Layout::ragged, 2, requests, 64), by_request_64},
      {problem_of_requests(Dtype::fp16, Mask::none, Layout::ragged, 2, requests, 64),
       by_request_64_short},
      {problem_of_requests(Dtype::fp16, kTop, Layout::bhsd, 2, requests, 128), by_request_128},
      {windowed(problem_of_requests(Dtype::fp16, kBottom, Layout::ragged, 2, requests, 120), 99),
       by_request_128},
      {windowed(grouped_problem(Dtype::fp16, kBottom, 2, 1000, 1500, 128), 300), by_request_128},
      {windowed(problem_of_requests(Dtype::bf16, kBottom, Layout::ragged, 2, requests, 256), 70),
       by_request_256},
      {in_pages(grouped_problem(Dtype::fp16, kBottom, 2, 700, 901, 128), 16), by_request_128},
      {in_pages(problem_of_requests(Dtype::bf16, kBottom, Layout::ragged, 2, requests, 64), 48),
       by_request_64},
      {in_pages(problem_of_requests(Dtype::bf16, Mask::none, Layout::bshd, 2, requests, 256), 80),
       by_request_256}};
}

class CudaSm90Delays : public testing::TestWithParam<int> {};

TEST_P(CudaSm90Delays, ChangeNoBit) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const auto [p, delayed, multiprocessors] = samples()[static_cast<size_t>(GetParam())];
  if (const auto why = kSm90Forward.why_unsupported(p, device->info())) GTEST_SKIP() << *why;
  ASSERT_THAT(kSm90Forward.candidates(p, device->info()), testing::Contains(delayed.blocks));

  DeviceInfo info = device->info();
  if (multiprocessors > 0) {
    info.threads = multiprocessors;
    EXPECT_THAT(kSm90Forward.variant({p, info, delayed.blocks}), testing::HasSubstr("pieces"));
  }
  CudaProblem one(*device, kSm90Forward, p, delayed.blocks, info);
  expect_no_bit_changes(*device, p, one, delayed.kernel, [&] {
    HostOutputs host = one.outputs().to_host();
    const Oracle oracle(p, one.host_inputs(), Dtype::fp32, {}, *device);
    const Verdict verdict = oracle.judge(host.view());
    EXPECT_TRUE(verdict.passed()) << verdict.reason;
  });
}

INSTANTIATE_TEST_SUITE_P(, CudaSm90Delays, testing::Range(0, static_cast<int>(samples().size())),
                         [](const auto& info) {
                           return test_name(samples()[static_cast<size_t>(info.param)].problem);
                         });

}  // namespace
}  // namespace sm90
}  // namespace flashbench::kernels
