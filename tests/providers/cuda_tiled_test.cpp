// What our fused kernels refuse, which shows without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "providers/provider.h"
#include "tests/kernels/hopper.h"

namespace flashbench {
namespace {

TEST(CudaTiled, RefusesOptionalAxes) {
  const DeviceInfo hopper = kernels::hopper();
  Problem p;
  p.dtype = Dtype::bf16;
  p.q_len = p.kv_len = 300;
  int tiled = 0;
  for (const auto& provider : all_providers()) {
    if (provider->device_kind() != DeviceKind::cuda) continue;
    if (!provider->name().starts_with("tiled") || provider->why_unsupported(p, hopper)) continue;
    ++tiled;
    Problem windowed = p;
    windowed.window_left = 100;
    EXPECT_THAT(provider->why_unsupported(windowed, hopper).value_or(""),
                testing::HasSubstr("it has no sliding windows"))
        << provider->name();
    Problem narrow = p;
    narrow.head_dim_v = 32;
    EXPECT_THAT(provider->why_unsupported(narrow, hopper).value_or(""),
                testing::HasSubstr("it takes V and O as wide as Q and K only"))
        << provider->name();
    for (const Layout layout : kLayouts) {
      Problem unequal = p;
      unequal.layout = layout;
      unequal.set_lengths(
          std::make_shared<const Lengths>(std::vector<RequestLengths>{{300, 300}, {20, 300}}));
      EXPECT_THAT(provider->why_unsupported(unequal, hopper).value_or(""),
                  testing::HasSubstr("it takes requests of equal lengths only"))
          << provider->name();
    }
  }
  EXPECT_GT(tiled, 2);
}

}  // namespace
}  // namespace flashbench
