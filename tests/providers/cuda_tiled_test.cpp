// What our fused kernels refuse, which shows without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/attention.h"
#include "providers/providers.h"
#include "tests/kernels/hopper.h"

namespace flashbench {
namespace {

TEST(CudaTiled, RefusesOptionalAxes) {
  const DeviceInfo hopper = kernels::hopper();
  Problem p;
  p.dtype = Dtype::bf16;
  p.q_heads = p.kv_heads = 100;  // too many for a kernel of few queries
  p.q_len = p.kv_len = 300;
  Problem windowed = p;
  windowed.window_left = 100;
  Problem narrow = p;
  narrow.head_dim_v = 32;
  std::vector<Problem> unequal;
  for (const Layout layout : kLayouts) {
    unequal.push_back(p);
    unequal.back().layout = layout;
    unequal.back().set_lengths(
        std::make_shared<const Lengths>(std::vector<RequestLengths>{{300, 300}, {20, 300}}));
  }
  int refused = 0;
  for (const kernels::AttentionKernel* kernel : kernels::cuda_kernels()) {
    if (kernel->pass != p.pass || kernel->why_unsupported(p, hopper)) continue;
    const auto provider = make_tiled_provider(DeviceKind::cuda, kernel->family);
    const auto expect_refusal = [&](bool knows, const Problem& problem, const char* why) {
      if (knows) return;
      EXPECT_THAT(provider->why_unsupported(problem, hopper).value_or(""), testing::HasSubstr(why))
          << provider->name();
      ++refused;
    };
    expect_refusal(kernel->knows_windows, windowed, "it has no sliding windows");
    expect_refusal(kernel->knows_head_dim_v, narrow, "it takes V and O as wide as Q and K only");
    for (const Problem& problem : unequal) {
      expect_refusal(kernel->knows_lengths, problem, "it takes requests of equal lengths only");
    }
  }
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace flashbench
