#include "report/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sample_result.h"

namespace flashbench {
namespace {

TEST(Record, FiguresFollowFromTheSamples) {
  const Record record = sample_record("tiled", 0.001);
  const auto figures = performance(record);
  ASSERT_TRUE(figures);
  EXPECT_DOUBLE_EQ(figures->median, 0.001);
  EXPECT_DOUBLE_EQ(figures->min, 0.0009);
  EXPECT_DOUBLE_EQ(figures->flops_per_second, record.item.problem.flops() / 0.001);
  EXPECT_DOUBLE_EQ(*figures->share_of_ceiling, figures->flops_per_second / 2e11);
  EXPECT_DOUBLE_EQ(*arithmetic_intensity(record), record.item.problem.flops() / (1 << 20));
}

TEST(Record, SpeedupComparesTheSameCaseOnly) {
  const SweepResult result = sample_result();
  EXPECT_DOUBLE_EQ(*speedup_vs_naive(result.records[1], result.records), 4.0);
  EXPECT_FALSE(speedup_vs_naive(result.records[2], result.records));
  EXPECT_FALSE(speedup_vs_naive(result.records[3], result.records));
}

TEST(Record, NothingCheckedHasNoError) {
  EXPECT_FALSE(worst_error(Verdict{}));
  EXPECT_EQ(verified(Verdict{}), "not_checked");
  const SweepResult result = sample_result();
  EXPECT_EQ(verified(result.records[0].verdict), "passed");
  EXPECT_EQ(verified(result.records[2].verdict), "sampled");
  EXPECT_EQ(verified(result.records[3].verdict), "failed");
  EXPECT_DOUBLE_EQ(worst_error(result.records[0].verdict)->max_abs, 3e-7);
}

TEST(Record, ANonFiniteErrorIsTheWorst) {
  Record record = sample_record("tiled", 1);
  record.verdict.tensors[0].max_abs = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(worst_error(record.verdict)->max_abs));
}

TEST(Record, ReproCommandNamesEveryAxis) {
  EXPECT_EQ(repro_command(sample_result().records[2]),
            "flashbench run --providers tiled --pass backward --dtype bf16 --mask "
            "causal_bottom_right --layout bshd --batch 1 --q-heads 32 --kv-heads 8 --q-len 1000 "
            "--kv-len 16384 --head-dim 128 --scale 0.25 --distribution normal --seed 1");
}

TEST(Record, ReproCommandNamesTheProgram) {
  Record record = sample_record("torch:flash", 1);
  record.program = "scripts/torch_sdpa.py";
  EXPECT_EQ(repro_command(record).find(
                "flashbench run --program scripts/torch_sdpa.py --providers torch:flash "),
            0u);
}

}  // namespace
}  // namespace flashbench
