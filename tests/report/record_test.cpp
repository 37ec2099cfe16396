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

Record counted(double operations, Problem problem) {
  Record record;
  record.item.problem = problem;
  record.counters =
      CounterReport{.run = {{"sm__ops_path_tensor_src_bf16_dst_fp32.sum", operations}}};
  return record;
}

TEST(TensorOperations, MayExceedTheFlopsByWholeTilesAndPaddingOnly) {
  const Problem square{.dtype = Dtype::bf16, .q_len = 1024, .kv_len = 1024, .head_dim = 64};
  const double flops = square.flops();
  EXPECT_EQ(tensor_operations(counted(flops, square))->verdict, "as_claimed");
  EXPECT_EQ(tensor_operations(counted(0.97 * flops, square))->verdict, "fewer");
  EXPECT_EQ(tensor_operations(counted(1.03 * flops, square))->verdict, "more");
  EXPECT_EQ(tensor_operations(counted(3 * flops, square))->ratio, 3);

  // 4 x 4 tiles of 256, of which a causal mask leaves 10.
  Problem causal = square;
  causal.mask = Mask::causal_bottom_right;
  EXPECT_EQ(tensor_operations(counted(flops * 10 / 16, causal))->verdict, "as_claimed");
  EXPECT_EQ(tensor_operations(counted(flops, causal))->verdict, "more");

  Problem narrow = square;
  narrow.head_dim = 80;
  EXPECT_EQ(tensor_operations(counted(2 * flops, narrow))->verdict, "as_claimed");
}

TEST(TensorOperations, AreNotJudgedWhereNoneAreClaimed) {
  Problem problem{.dtype = Dtype::fp32, .q_len = 8, .kv_len = 8};
  EXPECT_FALSE(tensor_operations(counted(0, problem)));
  problem.dtype = Dtype::bf16;
  Record record = counted(0, problem);
  record.counters->run.clear();
  EXPECT_FALSE(tensor_operations(record));
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
