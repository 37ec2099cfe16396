#include "plan/estimate.h"

#include <gtest/gtest.h>

namespace flashbench {
namespace {

Case forward_case(int64_t length) {
  Case c;
  c.problem.q_heads = c.problem.kv_heads = 2;
  c.problem.q_len = c.problem.kv_len = length;
  c.problem.head_dim = 64;
  return c;
}

TEST(Estimate, CountsFlopsAndTensors) {
  const CaseEstimate forward = estimate(forward_case(1024));
  EXPECT_EQ(forward.flops, 4.0 * 2 * 1024 * 1024 * 64);
  EXPECT_EQ(forward.tensor_bytes, 4 * (4 * 2 * 1024 * 64) + 4 * 2 * 1024);  // Q K V O, logsumexp
}

TEST(Estimate, SecondsFollowFlopsAndTheCap) {
  const MeasureOptions measure{.warmup_runs = 0,
                               .warmup_seconds = 0,
                               .min_samples = 10,
                               .max_samples = 10,
                               .max_seconds = 1e9};
  const VerifyOptions no_reference{.fp64_flops = 0};
  const double flops = forward_case(8192).problem.flops();
  // 21 runs (one for verification, and one before each sample), each at most as fast as the GEMM.
  const double slow =
      estimate_seconds(forward_case(8192), {"tiled"}, measure, no_reference, DeviceKind::cpu, 1e9);
  EXPECT_GT(slow, 21 * flops / 1e9);
  EXPECT_LT(slow, 21 * flops / 1e9 * 3);
  const double fast =
      estimate_seconds(forward_case(8192), {"tiled"}, measure, no_reference, DeviceKind::cpu, 1e10);
  EXPECT_NEAR(slow / fast, 10, 0.5);

  MeasureOptions capped = measure;
  capped.max_seconds = 0.001;  // one sample only
  const double once =
      estimate_seconds(forward_case(8192), {"tiled"}, capped, no_reference, DeviceKind::cpu, 1e9);
  EXPECT_NEAR(slow / once, 21.0 / 3, 0.1);
}

TEST(Estimate, ASmallCaseTakesItsTimeToo) {
  // It has a millionth of the large one's FLOPs; warm-up and sampling take as long.
  const std::vector<std::string> providers{"naive", "tiled"};
  const auto seconds = [&](int64_t length) {
    return estimate_seconds(forward_case(length), providers, {}, {}, DeviceKind::cpu, 2e11);
  };
  const auto verification = [&](int64_t length) {
    return estimate_verification(forward_case(length), providers, {}, DeviceKind::cpu, 2e11);
  };
  EXPECT_GT(seconds(16), 0.1 * providers.size());
  EXPECT_LT(seconds(16), seconds(16384));
  EXPECT_GT(seconds(16384) / seconds(16), 2);
  EXPECT_LT(seconds(16384) / seconds(16), 1000);
  EXPECT_GT(verification(16), 1e-3);
  EXPECT_LT(verification(16), seconds(16));
}

TEST(Estimate, ASweepRepeatsWhatItTimes) {
  SweepConfig config;
  config.cases = {forward_case(64), forward_case(128)};
  const auto seconds = [&](int repetitions, bool timed) {
    config.measure.repetitions = repetitions;
    return estimate_sweep(config, {"tiled"}, timed, DeviceKind::cpu, 2e11);
  };
  const double ceilings = 2 * seconds(1, true) - seconds(2, true);
  EXPECT_GT(ceilings, 1);
  EXPECT_NEAR(seconds(10, true) - ceilings, 10 * (seconds(1, true) - ceilings), 1e-9);
  EXPECT_EQ(seconds(10, false), seconds(1, false));
  EXPECT_LT(seconds(1, false), 0.1 * seconds(1, true));
}

TEST(Estimate, EachProviderAndTheReferenceAddUp) {
  const MeasureOptions measure;
  const VerifyOptions verify;
  const auto seconds = [&](const std::vector<std::string>& providers, double fp64_flops) {
    return estimate_seconds(forward_case(2048), providers, measure, {.fp64_flops = fp64_flops},
                            DeviceKind::cpu, 1e11);
  };
  EXPECT_GT(seconds({"naive"}, 0), seconds({"tiled"}, 0));
  EXPECT_NEAR(seconds({"naive", "tiled"}, 0) + seconds({}, 0),
              seconds({"naive"}, 0) + seconds({"tiled"}, 0), 1e-12);
  EXPECT_NEAR(seconds({}, 1e9) - seconds({}, 0), 1e9 / 1e10, 1e-12);
}

TEST(Estimate, AGpuChecksMoreOfTheReferenceThanAHost) {
  const auto seconds = [](DeviceKind kind, double fp64_flops) {
    return estimate_seconds(forward_case(8192), {}, {}, {.fp64_flops = fp64_flops}, kind, 1e14);
  };
  EXPECT_NEAR(seconds(DeviceKind::cpu, 1e8) - seconds(DeviceKind::cpu, 0), 1e8 / 1e13, 1e-12);
  EXPECT_NEAR(seconds(DeviceKind::cuda, 1e8) - seconds(DeviceKind::cuda, 0), 1e10 / 1e12, 1e-9);
}

TEST(Estimate, OnlyFusedProvidersSkipWhatIsMasked) {
  const MeasureOptions measure{.warmup_seconds = 0};
  const VerifyOptions no_reference{.fp64_flops = 0};
  Case causal = forward_case(4096);
  causal.problem.mask = Mask::causal_top_left;
  const auto seconds = [&](const Case& c, const char* provider) {
    return estimate_seconds(c, {provider}, measure, no_reference, DeviceKind::cpu, 1e11);
  };
  EXPECT_LT(seconds(causal, "tiled:sm80"), 0.6 * seconds(forward_case(4096), "tiled:sm80"));
  EXPECT_EQ(seconds(causal, "naive"), seconds(forward_case(4096), "naive"));
}

}  // namespace
}  // namespace flashbench
