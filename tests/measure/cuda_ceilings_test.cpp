// The ceilings that only GPUs have; skipped where there is none.
#include <gtest/gtest.h>

#include <algorithm>

#include "device/cuda.h"
#include "measure/ceilings.h"

namespace flashbench {
namespace {

TEST(CudaCeilings, HaveRoundingsToE4m3WhereTheGpuHas) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const auto device = make_cuda_device(0);
  MeasureOptions options;
  options.warmup_runs = 1;
  options.warmup_seconds = 0;
  options.min_samples = 2;
  options.max_samples = 2;
  const auto ceilings = measure_ceilings(*device, options, [] { return false; });
  EXPECT_TRUE(std::ranges::all_of(ceilings, [](const Ceiling& c) { return c.rate() > 0; }));
  const bool has_cvt = std::ranges::count(ceilings, "cvt_e4m3", &Ceiling::name) == 1;
  EXPECT_EQ(has_cvt, device->info().compute_capability >= 89);
}

}  // namespace
}  // namespace flashbench
