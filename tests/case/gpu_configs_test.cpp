// The configs that check our GPU kernels on a GPU reach every kernel in the list. This shows
// without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "case/choose.h"
#include "case/support.h"
#include "kernels/attention.h"
#include "plan/config.h"
#include "tests/kernels/hopper.h"

namespace flashbench {
namespace {

class GpuConfig : public testing::TestWithParam<std::string> {};

TEST_P(GpuConfig, HasACaseThatEachOfOurKernelsRuns) {
  const SweepConfig config = load_config(std::string(CONFIGS_DIR "/") + GetParam() + ".json", {});
  const auto providers = choose_providers(config.providers, DeviceKind::cuda);
  for (const kernels::AttentionKernel* kernel : kernels::cuda_kernels()) {
    const auto runs_it = [&](const Provider* provider) {
      return provider->name() == "tiled:" + std::string(kernel->family) &&
             std::ranges::any_of(config.cases, [&](const Case& item) {
               return item.problem.pass == kernel->pass &&
                      !why_unsupported(*provider, item, kernels::hopper());
             });
    };
    EXPECT_TRUE(std::ranges::any_of(providers, runs_it)) << kernel->name;
  }
}

INSTANTIATE_TEST_SUITE_P(, GpuConfig, testing::Values("gpu_kernels", "sanitize"),
                         [](const auto& test_info) { return test_info.param; });

}  // namespace
}  // namespace flashbench
