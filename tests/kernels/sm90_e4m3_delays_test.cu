// The forward kernel for Hopper on e4m3 with its roles delayed at random (delayed_forward.cuh).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/cuda.h"
#include "kernels/common/launch.h"
#include "kernels/sm90/forward_e4m3.cuh"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/delayed_forward.cuh"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/random_delay.cuh"

namespace flashbench::kernels {

extern const AttentionKernel kSm90E4m3, kSm90E4m3Unpromoted;

namespace sm90 {
namespace {

struct Sample {
  Problem problem;
  const AttentionKernel* kernel;
  CudaKernel<E4m3Arguments> delayed;
};

template <int kHeadDim, bool kPromoted>
Sample sample(Mask mask, int64_t q_len, int64_t kv_len) {
  using Kernel = ForwardE4m3<e4m3_configuration(kHeadDim, kPromoted), RandomDelay>;
  return {grouped_problem(Dtype::e4m3, mask, 2, q_len, kv_len, kHeadDim),
          kPromoted ? &kSm90E4m3 : &kSm90E4m3Unpromoted,
          {"sm90_e4m3", forward_e4m3_kernel<Kernel>, Kernel::kThreads,
           sizeof(typename Kernel::Shared)}};
}

std::vector<Sample> samples() {
  constexpr auto kNone = Mask::none, kTop = Mask::causal_top_left;
  constexpr auto kBottom = Mask::causal_bottom_right;
  return {sample<64, true>(kNone, 500, 1201), sample<64, true>(kBottom, 1601, 1700),
          sample<128, true>(kNone, 300, 777), sample<128, true>(kTop, 1000, 333),
          sample<128, true>(kBottom, 600, 450), sample<256, true>(kNone, 129, 500),
          sample<256, true>(kBottom, 700, 701), sample<128, false>(kBottom, 600, 1450),
          sample<256, false>(kBottom, 700, 701), sample<128, true>(kNone, 1, 1),
          // In pieces.
          sample<64, true>(kNone, 500, 4201), sample<128, true>(kNone, 300, 3000),
          sample<128, true>(kTop, 1300, 4000), sample<128, true>(kBottom, 500, 5100),
          sample<128, false>(kNone, 257, 4100), sample<256, true>(kBottom, 129, 4500)};
}

class CudaSm90E4m3Delays : public testing::TestWithParam<int> {};

TEST_P(CudaSm90E4m3Delays, ChangeNoBit) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const auto [p, kernel, delayed] = samples()[static_cast<size_t>(GetParam())];
  if (const auto why = kernel->why_unsupported(p, device->info())) GTEST_SKIP() << *why;

  CudaProblem one(*device, *kernel, p);
  one.launch();  // transposes V, once for all runs
  expect_no_bit_changes(*device, p, one, delayed,
                        [&] { EXPECT_EQ(one.outputs().unwritten_elements(), 0); });
}

INSTANTIATE_TEST_SUITE_P(, CudaSm90E4m3Delays,
                         testing::Range(0, static_cast<int>(samples().size())),
                         [](const auto& info) {
                           const Sample one = samples()[static_cast<size_t>(info.param)];
                           return test_name(one.problem) + "_" + std::to_string(info.param);
                         });

}  // namespace
}  // namespace sm90
}  // namespace flashbench::kernels
