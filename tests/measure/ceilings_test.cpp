#include "measure/ceilings.h"

#include <gtest/gtest.h>

namespace flashbench {
namespace {

TEST(Ceilings, AreMeasuredWithTheirSamples) {
  const auto device = make_host_device(2);
  MeasureOptions options;
  options.warmup_runs = 1;
  options.warmup_seconds = 0;
  options.min_samples = 2;
  options.max_samples = 2;
  const auto ceilings = measure_ceilings(*device, options, [] { return false; });
  ASSERT_EQ(ceilings.size(), 3u);
  EXPECT_EQ(ceilings[0].name, "gemm_fp32");
  EXPECT_EQ(ceilings[1].name, "copy");
  EXPECT_EQ(ceilings[2].name, "read");
  for (const Ceiling& ceiling : ceilings) {
    EXPECT_EQ(ceiling.measurement.seconds.size(), 2u);
    EXPECT_GT(ceiling.rate(), 0);
  }
  EXPECT_EQ(device->used().total(), 0);
}

}  // namespace
}  // namespace flashbench
