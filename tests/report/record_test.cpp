#include "report/record.h"
#include "measure/round_ceilings.h"
#include "report/json.h"
#include "report/notes.h"

#include <gmock/gmock.h>
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
  EXPECT_DOUBLE_EQ(*share_of_ceiling(record, {record}), figures->flops_per_second / 2e11);
  EXPECT_DOUBLE_EQ(*arithmetic_intensity(record), record.item.problem.flops() / (1 << 20));
}

// A record with this share of the GEMM's FLOP/s.
Record at_share_of_gemm(double share, const std::string& provider = "tiled") {
  Record record = sample_record(provider, 0.001);
  record.gemm_flops *= *over_gemm(record) / share;
  return record;
}

SweepResult result_of(std::vector<Record> records) {
  SweepResult result = sample_result();
  result.records = std::move(records);
  return result;
}

TEST(Ceiling, IsThatOfAllGpusAtWork) {
  Record record = at_share_of_gemm(1.5, "tiled:ring");
  record.group = GroupReport{{0.001, 0.001}, {0, 0}, 0.001, 0.001, 0.001};
  record.group->gpus_at_work = 2;
  const SweepResult result = result_of({record});
  EXPECT_NEAR(*share_of_ceiling(result.records[0], result.records), 0.75, 1e-9);
  EXPECT_TRUE(warnings(result).empty());
}

TEST(Ceiling, IsThatOfTheGpusOfAnotherProgram) {
  Record record = at_share_of_gemm(1.5, "torch:context_parallel_cudnn_alltoall");
  record.item.problem.gpus = 2;
  EXPECT_NEAR(*over_gemm(record), 1.5, 1e-9);
  record.program = "scripts/torch_context_parallel.py";
  EXPECT_NEAR(*over_gemm(record), 0.75, 1e-9);
}

TEST(Ceiling, ThatAProviderExceedsIsNoneForItsWholeCase) {
  const SweepResult good = result_of({at_share_of_gemm(1.04), at_share_of_gemm(0.5, "naive")});
  EXPECT_NEAR(*share_of_ceiling(good.records[0], good.records), 1.04, 1e-9);
  EXPECT_TRUE(notes(good.records[0], good).empty());
  EXPECT_TRUE(warnings(good).empty());

  SweepResult bad = result_of({at_share_of_gemm(6.33), at_share_of_gemm(0.5, "naive")});
  bad.records.push_back(at_share_of_gemm(0.5, "naive"));
  bad.records.back().item.inputs.seed = 2;  // another case
  EXPECT_FALSE(share_of_ceiling(bad.records[0], bad.records));
  EXPECT_FALSE(share_of_ceiling(bad.records[1], bad.records));
  EXPECT_TRUE(share_of_ceiling(bad.records[2], bad.records));
  EXPECT_EQ(
      notes(bad.records[0], bad),
      std::vector<std::string>{
          "no % gemm: this row reaches 633% of the GEMM's FLOP/s, so the GEMM is not a ceiling"});
  EXPECT_EQ(
      notes(bad.records[1], bad),
      std::vector<std::string>{
          "no % gemm: tiled reaches 633% of the GEMM's FLOP/s, so the GEMM is not a ceiling"});
  EXPECT_TRUE(notes(bad.records[2], bad).empty());
  ASSERT_EQ(warnings(bad).size(), 1u);
  EXPECT_EQ(warnings(bad)[0].find("warning: in 1 case a provider exceeds the GEMM"), 0u);
}

// On a GPU of 100 multiprocessors with Hopper's tensor cores at 1 GHz: 409.6 TFLOP/s.
SweepResult at_tflops(double tflops) {
  Record record = sample_record("tiled", 1);
  record.item.problem.dtype = Dtype::bf16;
  record.measurement->seconds.assign(3, record.item.problem.flops() / (tflops * 1e12));
  record.measurement->states.assign(3, {1000, 500, 0});
  record.gemm.reset();
  SweepResult result = result_of({record});
  result.devices[0]["instructions"] = "sm_90";
  result.devices[0]["threads"] = 100;
  return result;
}

TEST(Peak, IsOfThePipeAtTheMeasuredClock) {
  SweepResult result = at_tflops(204.8);
  EXPECT_NEAR(*share_of_peak(result.records[0], result), 0.5, 1e-9);
  EXPECT_TRUE(notes(result.records[0], result).empty());

  result.records[0].measurement->states.clear();  // no clock
  EXPECT_FALSE(share_of_peak(result.records[0], result));
  result = at_tflops(204.8);
  result.devices[0]["instructions"] = "AVX3";
  EXPECT_FALSE(share_of_peak(result.records[0], result));
  result.devices[0]["instructions"] = "sm_30";
  EXPECT_FALSE(share_of_peak(result.records[0], result));
}

TEST(Peak, IsThatOfBytesIfInputsAreRoundedToThem) {
  SweepResult result = at_tflops(409.6);
  result.records[0].item.problem.quantize = Quantize::e4m3_head;
  EXPECT_NEAR(*share_of_peak(result.records[0], result), 0.5, 1e-9);
}

TEST(Peak, IsThatOfAllGpusAtWork) {
  SweepResult result = at_tflops(409.6);
  result.records[0].group = GroupReport{{0.001, 0.001}, {0, 0}, 0.001, 0.001, 0.001};
  result.records[0].group->gpus_at_work = 2;
  EXPECT_NEAR(*share_of_peak(result.records[0], result), 0.5, 1e-9);
}

TEST(Peak, CannotBeExceeded) {
  const SweepResult result = at_tflops(450);
  EXPECT_FALSE(share_of_peak(result.records[0], result));
  ASSERT_EQ(notes(result.records[0], result).size(), 1u);
  EXPECT_NE(notes(result.records[0], result)[0].find("110% of the peak at the samples' SM "
                                                     "clock (1000 MHz) is impossible"),
            std::string::npos);
  EXPECT_EQ(warnings(result).size(), 1u);
}

TEST(Record, CoarseIsAVerdictOfItsOwnAndNoFailure) {
  SweepResult result = result_of({sample_record("naive", 1)});
  Record& record = result.records[0];
  record.verdict.sampled = true;
  record.verdict.coarse = "dq is off by 380% of its own norm";
  EXPECT_TRUE(record.verdict.passed());
  EXPECT_EQ(verified(record.verdict), "coarse");
  EXPECT_EQ(notes(record, result), std::vector<std::string>{record.verdict.coarse});
  record.verdict.status = Verdict::Status::failed;
  EXPECT_EQ(verified(record.verdict), "failed");
}

TEST(Record, TheWorstRootMeanSquareIsOverAllTensorsThatHaveOne) {
  Record record = sample_record("tiled", 1);
  EXPECT_FALSE(worst_error(record.verdict)->rel_rms);
  record.verdict.tensors[1].rel_rms_err = 0.25;
  EXPECT_EQ(worst_error(record.verdict)->rel_rms, 0.25);
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

  // 4 x 4 tiles of 256, 10 of which a causal mask keeps.
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

TEST(Record, ReproCommandQuotesWhatAShellWouldChange) {
  Record record = sample_record("plugin:mine", 1);
  record.program = "my program.py";
  record.plugin = PluginFile{"plugin:mine", "lib's.so", "0123456789abcdef"};
  record.item.inputs = {.distribution = Distribution::files, .q = "a;b.npy", .k = "k", .v = "v"};
  const std::string command = repro_command(record);
  EXPECT_THAT(command, testing::StartsWith("flashbench run --program 'my program.py' --providers "
                                           "plugin:mine --plugin 'mine=lib'\\''s.so' "));
  EXPECT_THAT(command, testing::EndsWith(" --q 'a;b.npy' --k k --v v"));
}

TEST(Group, FiguresFollowFromTheRuns) {
  const GroupReport group{{1, 1, 2}, {5, 6, 7}, 2, 1.5, 1};
  EXPECT_DOUBLE_EQ(group.skew(), 0.5);
  EXPECT_DOUBLE_EQ(group.exposed(), 0.5);
  EXPECT_DOUBLE_EQ(*group.overlap(), 0.5);
  const GroupReport slower_alone{{1}, {0}, 1, 1.5, 0};
  EXPECT_EQ(slower_alone.exposed(), 0);
  EXPECT_FALSE(slower_alone.overlap());  // nothing was copied
}

// An all-gather of 64 MB among 4 ranks in 1 ms: nccl-tests reports algbw 64 GB/s and busbw 48.
TEST(Group, BusBandwidthIsThatOfNcclTests) {
  const GroupReport group{{}, {16'000'000 * 3, 0, 5}, 0.003, 0.002, 0.001};
  EXPECT_DOUBLE_EQ(*group.bus_bandwidth(), 64e9 * 3 / 4);
  EXPECT_FALSE((GroupReport{{}, {100}, 1, 1, 0}.bus_bandwidth()));
  EXPECT_FALSE((GroupReport{{}, {}, 1, 1, 1}.bus_bandwidth()));
}

TEST(Group, EfficiencyAtTheSameWorkIsThatOverOneDevicesShareInTheSameRounds) {
  Record record = sample_record("tiled:ring", 0.004);
  record.item.problem.gpus = 4;
  Measurement share;
  share.seconds = {0.001, 0.003, 0.005};
  record.round_ceilings = {{std::string(kSameWork), "run/s", "", 1, share}};
  EXPECT_FALSE(same_work_efficiency(record));  // of one device
  record.group = GroupReport{{0.004}, {0}, 0.004, 0.001, 0.001};
  EXPECT_DOUBLE_EQ(*same_work_efficiency(record), 0.75);
  record.round_ceilings.clear();
  EXPECT_FALSE(same_work_efficiency(record));
}

TEST(Record, SpeedupOverInputsAsTheyAreIsThatOfTheSameRounds) {
  Record record = sample_record("tiled", 0.002);
  EXPECT_FALSE(speedup_vs_unrounded(record));
  Measurement unrounded;
  unrounded.seconds = {0.001, 0.003, 0.005};
  record.round_ceilings = {{std::string(kUnrounded), "run/s", "", 1, unrounded}};
  EXPECT_DOUBLE_EQ(*speedup_vs_unrounded(record), 1.5);
  record.measurement.reset();
  EXPECT_FALSE(speedup_vs_unrounded(record));
}

TEST(Group, EfficiencyIsThatOverOneDeviceInTheSameRounds) {
  const auto shared = [](const char* provider, double seconds) {
    Record record = sample_record(provider, seconds);
    record.item.problem.gpus = 4;
    return record;
  };
  Record four = shared("tiled:ring", 0.001);
  four.group = GroupReport{{0.001}, {0}, 0.001, 0.001, 0.001};
  const Record one = shared("tiled", 0.003);
  EXPECT_DOUBLE_EQ(*strong_efficiency(four, {one, four}), 0.75);
  EXPECT_FALSE(strong_efficiency(one, {one, four}));
  EXPECT_FALSE(strong_efficiency(four, {four}));
  Record on_one_gpu = four;
  on_one_gpu.group->shares_gpus = true;
  EXPECT_FALSE(strong_efficiency(on_one_gpu, {one, on_one_gpu}));
  EXPECT_THAT(notes(on_one_gpu, result_of({one, on_one_gpu})),
              testing::Contains(testing::HasSubstr("ranks share a GPU")));
  EXPECT_THAT(notes(four, result_of({one, four})), testing::IsEmpty());
  Record elsewhere = one;
  elsewhere.source = "other.json";
  EXPECT_FALSE(strong_efficiency(four, {elsewhere, four}));
  Record other_case = one;
  other_case.item.problem.q_len += 1;
  EXPECT_FALSE(strong_efficiency(four, {other_case, four}));
}

TEST(Group, IsWrittenAndReadBack) {
  Record record = sample_record("tiled:ring", 0.001);
  record.item.problem.gpus = 2;
  record.item.problem.split = Split::contiguous;
  record.group = GroupReport{{0.5, 0.25}, {100, 0}, 0.5, 0.375, 0.125};
  const SweepResult result = result_of({record});
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_EQ(to_json(again), to_json(result));
  ASSERT_TRUE(again.records[0].group);
  EXPECT_EQ(again.records[0].group->rank_seconds, record.group->rank_seconds);
  EXPECT_EQ(again.records[0].group->sent_bytes, record.group->sent_bytes);
  EXPECT_FALSE(again.records[0].group->shares_gpus);
  EXPECT_EQ(again.records[0].group->gpus_at_work, 1);
  record.group->shares_gpus = true;
  record.group->gpus_at_work = 2;
  const SweepResult shared = result_from_json(to_json(result_of({record})), "memory");
  EXPECT_TRUE(shared.records[0].group->shares_gpus);
  EXPECT_EQ(shared.records[0].group->gpus_at_work, 2);
  EXPECT_EQ(again.records[0].item, record.item);
}

}  // namespace
}  // namespace flashbench
