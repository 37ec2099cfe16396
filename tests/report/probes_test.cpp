#include "report/probes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace flashbench {
namespace {

DeviceInfo gpu_of(int compute_capability) {
  DeviceInfo info;
  info.kind = DeviceKind::cuda;
  info.compute_capability = compute_capability;
  info.threads = 100;
  return info;
}

// Of one run that takes a second at this clock; without one, the device does not report it.
Ceiling ceiling_of(const char* name, double work, std::optional<double> sm_mhz) {
  Ceiling ceiling{name, "value/s", "", work, {}};
  ceiling.measurement.seconds = {1};
  if (sm_mhz) ceiling.measurement.states = {{.sm_mhz = *sm_mhz}};
  return ceiling;
}

// Tensor cores that take no products, and keep three bits of sums.
void keep_three_bits(ProductStep& step) {
  std::ranges::fill(step.sums, 1.875f);
}

TEST(Probes, HaveTheAccumulatorAndRatesPerClockAndMultiprocessor) {
  const std::vector<Ceiling> ceilings{ceiling_of("ffma", 5e12, 2000),
                                      ceiling_of("exp2", 3.2e12, 2000),
                                      ceiling_of("cvt_e4m3", 12.79e12, 2000)};
  EXPECT_EQ(probes_json(gpu_of(90), keep_three_bits, ceilings).dump(),
            R"({"e4m3_products":{"accumulator":"neither fp22 nor fp32","bits_of_sum":3,)"
            R"("bits_beside_sum":0,"bits_beside_product":[0,0]},)"
            R"("exp2_values_per_clock":16.0,"cvt_e4m3_values_per_clock":64.0})");
}

TEST(Probes, SayWhatTheyNeedAndLeaveOutRatesThatAreNotKnown) {
  const auto never = [](ProductStep&) { FAIL() << "no Hopper"; };
  EXPECT_EQ(
      probes_json(gpu_of(80), never, {ceiling_of("exp2", 3.2e12, {})}).dump(),
      R"({"e4m3_products":"needs a GPU of compute capability 9.0: wgmma is Hopper's alone"})");
}

}  // namespace
}  // namespace flashbench
